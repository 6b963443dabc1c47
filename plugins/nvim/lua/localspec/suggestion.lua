--- The suggestion at one place: its items, and how much of them has been typed or accepted since.
--- Works on texts only: no buffer, no screen, no daemon.

---@class localspec.Item
---@field id string the daemon's id
---@field text string
---@field before string the part of the daemon's item that was in the text before `text`

---@class localspec.Suggestion
---@field items localspec.Item[]
---@field at integer the current item
---@field typed string the part of it that has been typed since
local Suggestion = {}
Suggestion.__index = Suggestion

---@param items {id: string, text: string}[]
function Suggestion.new(items)
  local own = {}
  for _, item in ipairs(items) do
    own[#own + 1] = { id = item.id, text = item.text, before = item.before or "" }
  end
  return setmetatable({ items = own, at = 1, typed = "" }, Suggestion)
end

--- The number of code points in a text.
function Suggestion.chars(text)
  local _, continued = text:gsub("[\128-\191]", "")
  return #text - continued
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

--- The suggestion as if requested at the cursor's place now, with `more` items after the current one.
---@param more {id: string, text: string}[]
function Suggestion:joined(more)
  local item = self:item()
  local first = { id = item.id, text = self:rest(), before = item.before .. self.typed }
  local items, known = { first }, { [first.text] = true }
  for _, other in ipairs(more) do
    if not known[other.text] then
      known[other.text] = true
      items[#items + 1] = other
    end
  end
  return Suggestion.new(items)
end

--- The number of code points of the daemon's item in the text.
function Suggestion:taken()
  return Suggestion.chars(self:item().before .. self.typed)
end

--- The beginning of the rest up to the end of its first word, or of its first punctuation.
function Suggestion:word()
  local rest = self:rest()
  -- All non-ASCII letters count as word characters: these are the bytes from 128 on.
  return rest:match("^%s*[%w_\128-\255]+") or rest:match("^%s*[^%w_%s\128-\255]+") or rest
end

--- The beginning of the rest up to the end of its first line, or of the next one if the rest begins with a line end.
function Suggestion:line()
  return self:rest():match("^\r?\n?[^\r\n]*")
end

return Suggestion
