--- What is suggested at one place: its items, and how much of them has been typed or accepted since.
--- It knows texts only: no buffer, no screen, no daemon.

---@class localspec.Item
---@field id string what the daemon calls it
---@field text string
---@field before string what of the daemon's item stands in front of `text` already

---@class localspec.Suggestion
---@field items localspec.Item[]
---@field at integer the current item
---@field typed string what of it has been typed since
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

--- How many code points a text has.
function Suggestion.chars(text)
  local _, continued = text:gsub("[\128-\191]", "")
  return #text - continued
end

---@return localspec.Item
function Suggestion:item()
  return self.items[self.at]
end

--- What is left of the current item.
function Suggestion:rest()
  return self:item().text:sub(#self.typed + 1)
end

--- Since it was asked for, `typed` was typed; whether there is an item that begins so.
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

--- Go to the next (1) or previous (-1) item that has another rest.
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

--- The same, as if it had been asked for where the cursor is now, with more items behind the current one.
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

--- How many code points of the daemon's item stand in the text.
function Suggestion:taken()
  return Suggestion.chars(self:item().before .. self.typed)
end

--- The beginning of the rest up to the end of its first word, or of what stands between words.
function Suggestion:word()
  local rest = self:rest()
  -- Every letter that is not ASCII's is one of a word: bytes from 128 on are parts of such.
  return rest:match("^%s*[%w_\128-\255]+") or rest:match("^%s*[^%w_%s\128-\255]+") or rest
end

--- The beginning of the rest up to the end of its first line, or of the next one where that is here.
function Suggestion:line()
  return self:rest():match("^\r?\n?[^\r\n]*")
end

return Suggestion
