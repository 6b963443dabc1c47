--- Inline completion in insert mode: requests, display, acceptance and dismissal.

local Feedback = require("localspec.feedback")
local Suggestion = require("localspec.suggestion")
local bridge = require("localspec.bridge")
local context = require("localspec.context")
local ghost = require("localspec.ghost")
local notice = require("localspec.notice")
local ring = require("localspec.ring")
local status = require("localspec.status")

local M = {}

local CYCLED = 3

local settings
---@type {suggestion: localspec.Suggestion, context: localspec.Context}?
local shown
local feedback = Feedback.new(bridge.feedback)
---@type {request: localspec.Request?}? the request in progress
local pending
---@type {buf: integer, tick: integer}? the text of the last request, or of the last key that followed a suggestion
local seen
---@type {buf: integer, row: integer}? the place of the last request: the model has read the text around it
local last_place
--- true after the first InsertEnter since Neovim started
local has_typed = false
local warming = false

local function here()
  local cursor = vim.api.nvim_win_get_cursor(0)
  return vim.api.nvim_get_current_buf(), cursor[1] - 1, cursor[2]
end

local function is_inserting()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

local function is_allowed(buf)
  return settings.enabled and context.allowed(buf, settings.exclude) and not vim.wo.diff
end

local function is_covered()
  return not settings.popup_menu and vim.fn.pumvisible() == 1
end

--- Draw the rest of a suggestion, unless the popup menu is open.
---@param suggestion localspec.Suggestion
local function draw(suggestion)
  if is_covered() then
    return ghost.clear()
  end
  local buf, row, col = here()
  ghost.draw(buf, row, col, suggestion:rest())
  feedback:shown(suggestion:item().id)
end

--- Remove the suggestion, and report its end.
local function drop()
  ghost.clear()
  feedback:leave()
  shown = nil
end

--- Report how much of the current item is in the text.
local function took(by_command)
  local suggestion = shown.suggestion
  local item = suggestion:item()
  feedback:offer(item.id)
  feedback:took(item.id, suggestion:taken(), by_command)
end

--- Cancel the request in progress; the daemon only cancels it by itself at a newer one for the same file.
local function stop_asking()
  local old = pending
  pending = nil
  status.set_thinking(false)
  if old and old.request then
    bridge.cancel(old.request)
  end
end

local function params_of(around, trigger, count)
  return {
    path = context.path(around.buf),
    language = vim.bo[around.buf].filetype,
    prefix = around.prefix,
    suffix = around.suffix,
    extra = ring.extra(around.buf, settings.exclude),
    n = count,
    max_ms = settings.max_ms,
    multiline = settings.multiline,
    trigger = trigger,
    options = settings.model and { model = settings.model } or vim.empty_dict(),
  }
end

local function complain(error)
  local data = error.data or { code = "internal", message = error.message or "", remedy = "" }
  if data.code == "lost" then
    return -- the bridge reports it if necessary
  end
  status.set_error(data)
  notice.once(data.code, vim.trim(data.message .. " " .. (data.remedy or "")))
end

--- Show items requested at `around`, if the text there still fits them; returns true if one is shown.
local function show(items, around)
  local typed = context.typed_since(around, here())
  if not typed or #items == 0 then
    return false
  end
  local suggestion = Suggestion.new(items)
  if not suggestion:follow(typed) or suggestion:rest() == "" then
    return false
  end
  drop()
  feedback:offer(suggestion:item().id)
  draw(suggestion)
  shown = { suggestion = suggestion, context = around }
  return true
end

--- Request a completion at the cursor; `answered(items, around)` is called unless a newer request replaces it.
---@param is_again boolean? true if the connection was lost during the first attempt
local function ask(trigger, count, answered, is_again)
  local around = context.at(here())
  if not around then
    if trigger == "invoked" then
      notice.tell("no completion: this file is larger than 1 MiB")
    end
    return
  end
  local own = {}
  pending, seen = own, { buf = around.buf, tick = around.tick }
  last_place = { buf = around.buf, row = around.row }
  status.set_thinking(true)
  own.request = bridge.request("completion/inline", params_of(around, trigger, count), function(error, result)
    if result then
      status.count(result)
    end
    if pending ~= own then
      return
    end
    pending = nil
    status.set_thinking(false)
    if not is_inserting() or not is_allowed(around.buf) then
      return
    elseif result then
      status.set_error(nil)
      answered(result.items, around)
    elseif error.data and error.data.code == "lost" and not is_again then
      ask(trigger, count, answered, true)
    else
      complain(error)
    end
  end)
end

local function ask_automatically()
  ask("automatic", 1, show)
end

--- Handle a change of text, cursor or popup menu in insert mode.
function M.update()
  local buf, row, col = here()
  if not is_inserting() then
    return
  elseif not is_allowed(buf) then
    stop_asking()
    return drop()
  end
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  if shown then
    local typed = context.typed_since(shown.context, buf, row, col)
    if typed and shown.suggestion:follow(typed) then
      took(false)
      if shown.suggestion:rest() ~= "" then
        seen = { buf = buf, tick = tick }
        return draw(shown.suggestion)
      end
    end
    drop()
  end
  if seen and seen.buf == buf and seen.tick == tick then
    return -- the cursor alone has moved
  end
  ring.visit(buf, row)
  if settings.automatic and not is_covered() then
    ask_automatically()
  end
end

--- Handle the beginning of insert mode.
function M.enter()
  has_typed = true
  seen = nil
  M.update()
end

--- Record the cursor's place: its lines are sent with completions in other files.
function M.visit()
  local buf, row = here()
  if is_allowed(buf) then
    ring.visit(buf, row)
  end
end

--- Handle leaving insert mode or the buffer.
function M.leave()
  M.visit()
  stop_asking()
  drop()
end

--- Handle a resting cursor: have the model read the text around it, unless it has already.
function M.rest()
  local buf, row, col = here()
  if not has_typed or not is_allowed(buf) then
    return
  end
  ring.visit(buf, row)
  local is_near = last_place and last_place.buf == buf and math.abs(last_place.row - row) <= 64
  local around = not (is_near or warming or is_inserting()) and context.at(buf, row, col)
  if not around then
    return
  end
  warming, last_place = true, { buf = buf, row = row }
  local params = params_of(around)
  params.n, params.max_ms, params.multiline = nil, nil, nil
  bridge.request("completion/warm", params, function()
    warming = false
  end)
end

--- Return true if a suggestion is visible, and so can be accepted.
function M.is_visible()
  return shown ~= nil
    and ghost.is_drawn()
    and is_allowed(shown.context.buf)
    and context.typed_since(shown.context, here()) == shown.suggestion.typed
end

--- Insert text at the cursor unchanged: no indenting, no wrapping, no abbreviations.
local function insert(text)
  local buf, row, col = here()
  if vim.bo[buf].fileformat == "dos" then
    text = text:gsub("\r\n", "\n")
  end
  local lines = vim.split(text, "\n", { plain = true })
  vim.api.nvim_buf_set_text(buf, row, col, row, col, lines)
  local last = lines[#lines]
  vim.api.nvim_win_set_cursor(0, { row + #lines, #lines == 1 and col + #last or #last })
end

--- Accept all of the suggestion, its first `word` or its first `line`.
---@param what "all"|"word"|"line"
function M.take(what)
  if not M.is_visible() then
    return
  end
  local suggestion = shown.suggestion
  local piece = what == "all" and suggestion:rest() or suggestion[what](suggestion)
  local is_all = piece == suggestion:rest()
  insert(piece)
  if is_all then
    feedback:accepted(suggestion:item().id)
    drop()
    seen = nil
  else
    suggestion:follow(suggestion.typed .. piece)
    took(true)
  end
  M.update()
end

--- Show the next (1) or the previous (-1) item; the first time, more items are requested.
function M.cycle(step)
  if not M.is_visible() then
    return M.trigger()
  end
  if shown.suggestion.is_whole then
    if shown.suggestion:cycle(step) then
      draw(shown.suggestion)
    end
    return
  end
  ask("invoked", CYCLED, function(items, around)
    if not shown or context.typed_since(around, here()) ~= "" then
      return
    end
    shown.suggestion, shown.context = shown.suggestion:joined(items), around
    shown.suggestion.is_whole = true
    shown.suggestion:cycle(step)
    draw(shown.suggestion)
  end)
end

--- Request a suggestion at the cursor at once, also at places where the model is unsure.
function M.trigger()
  local buf = here()
  if not is_inserting() then
    return notice.tell("suggestions are shown in insert mode only")
  elseif not is_allowed(buf) then
    return notice.tell("completions are off in this buffer")
  end
  bridge.try_at_once()
  drop()
  ask("invoked", 1, show)
end

--- Dismiss the suggestion until the text changes.
function M.dismiss()
  stop_asking()
  drop()
end

---@param new_settings table
function M.configure(new_settings)
  settings = new_settings
  stop_asking()
  drop()
end

return M
