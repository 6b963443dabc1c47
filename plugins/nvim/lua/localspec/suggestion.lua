--- The suggestion at one place: its items, and how much of them has been typed or accepted since.
--- Works on texts only: no buffer, no screen, no server.

---@class localspec.Item
---@field sent table the server's item
---@field text string
---@field before string the part of the server's item that was in the text before `text`

---@class localspec.Suggestion
---@field items localspec.Item[]
---@field at integer the current item
---@field typed string the part of it that has been typed since
local Suggestion = {}
Suggestion.__index = Suggestion

---@param sent {insertText: string}[] the server's items
function Suggestion.new(sent)
  local items = vim.tbl_map(function(item)
    return { sent = item, text = item.insertText, before = "" }
  end, sent)
  return setmetatable({ items = items, at = 1, typed = "" }, Suggestion)
end

---@return localspec.Item
function Suggestion:item()
  return self.items[self.at]
end

--- The rest of the current item.
function Suggestion:rest()
  return self:item().text:sub(#self.typed + 1)
end

--- Take the text typed since the request; returns true if an item begins with it.
function Suggestion:follow(typed)
  for step = 0, #self.items - 1 do
    local at = (self.at - 1 + step) % #self.items + 1
    if vim.startswith(self.items[at].text, typed) then
      self.at, self.typed = at, typed
      return true
    end
  end
  return false
end

--- Go to the next (1) or previous (-1) item with a different rest; returns true if there is one.
function Suggestion:cycle(step)
  local rest, typed = self:rest(), self.typed
  for distance = 1, #self.items - 1 do
    local at = (self.at - 1 + step * distance) % #self.items + 1
    local text = self.items[at].text
    if vim.startswith(text, typed) and #text > #typed and text:sub(#typed + 1) ~= rest then
      self.at = at
      return true
    end
  end
  return false
end

--- The suggestion as if requested at the cursor's place now, with the items `sent` after the current one.
---@param sent {insertText: string}[]
function Suggestion:joined(sent)
  local item, joined = self:item(), Suggestion.new(sent)
  local current = { sent = item.sent, text = self:rest(), before = item.before .. self.typed }
  joined.items = vim.tbl_filter(function(other)
    return other.text ~= current.text
  end, joined.items)
  table.insert(joined.items, 1, current)
  return joined
end

--- The UTF-16 units of the server's item that are in the text.
function Suggestion:taken()
  local text = self:item().before .. self.typed
  local _, characters = text:gsub("[^\128-\191]", "")
  local _, wide = text:gsub("[\240-\247]", "")
  return characters + wide
end

--- The beginning of the rest up to the end of its first word, or of its first punctuation.
function Suggestion:word()
  local rest = self:rest()
  -- All non-ASCII letters count as word characters: these are the bytes from 128 on.
  return rest:match("^%s*[%w_\128-\255]+") or rest:match("^%s*[^%w_%s\128-\255]+") or rest
end

--- The beginning of the rest up to the end of its first line, or of the next one if the rest begins with a line end.
function Suggestion:line()
  return self:rest():match("^\n?[^\n]*")
end

return Suggestion
