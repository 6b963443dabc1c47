--- The events of the shown suggestion, each reported once, in code points of the item; the same in all editors.

---@class localspec.Feedback
---@field private tell fun(item: string, event: string, chars: integer?)
---@field private item string?
---@field private is_shown boolean
---@field private taken integer
---@field private reported integer
local Feedback = {}
Feedback.__index = Feedback

---@param tell fun(item: string, event: string, chars: integer?)
function Feedback.new(tell)
  local own = setmetatable({ tell = tell }, Feedback)
  own:clear()
  return own
end

---@private
function Feedback:clear()
  self.item, self.is_shown, self.taken, self.reported = nil, false, 0, 0
end

--- Take the offered item; a different one before it is left.
function Feedback:offer(item)
  if item ~= self.item then
    self:leave()
    self.item = item
  end
end

--- Report that the item is shown.
function Feedback:shown(item)
  if item == self.item and not self.is_shown then
    self.is_shown = true
    self.tell(item, "shown")
  end
end

--- Take the number of code points in the text; `by_command` if a word or a line was accepted, not typed.
function Feedback:took(item, chars, by_command)
  if item ~= self.item then
    return
  end
  self.taken = chars
  if by_command and chars > self.reported then
    self:shown(item)
    self.reported = chars
    self.tell(item, "partial", chars)
  end
end

function Feedback:accepted(item)
  self:offer(item)
  self:shown(item)
  self.tell(item, "accepted")
  self:clear()
end

--- End the item: text typed along it counts as accepted.
function Feedback:leave()
  local item = self.item
  if item and self.taken > self.reported then
    self:shown(item)
    self.tell(item, "partial", self.taken)
  elseif item and self.is_shown and self.reported == 0 then
    self.tell(item, "dismissed")
  end
  self:clear()
end

return Feedback
