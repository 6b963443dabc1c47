--- Inline completion in insert mode: requests, display, acceptance and dismissal.

local Suggestion = require("localspec.suggestion")
local context = require("localspec.context")
local ghost = require("localspec.ghost")
local notice = require("localspec.notice")
local server = require("localspec.server")

local M = {}

--- Kinds of triggers in the protocol.
local INVOKED, AUTOMATIC = 1, 2

local settings
---@type {suggestion: localspec.Suggestion, context: localspec.Context, reported: table?}?
local shown
---@type {request: integer?}? the request in progress
local pending
---@type {buf: integer, tick: integer}? the text of the last request, or of the last key that followed a suggestion
local seen

local function here()
  local cursor = vim.api.nvim_win_get_cursor(0)
  return vim.api.nvim_get_current_buf(), cursor[1] - 1, cursor[2]
end

local function is_inserting()
  return vim.api.nvim_get_mode().mode:sub(1, 1) == "i"
end

local function is_covered()
  return not settings.popup_menu and vim.fn.pumvisible() == 1
end

--- Draw the rest of the suggestion, unless the popup menu is open, and report each item once.
local function draw()
  if is_covered() then
    return ghost.clear()
  end
  local buf, row, col = here()
  ghost.draw(buf, row, col, shown.suggestion:rest())
  local sent = shown.suggestion:item().sent
  if shown.reported ~= sent then
    shown.reported = sent
    server.notify("textDocument/didShowCompletion", { item = sent })
  end
end

local function drop()
  ghost.clear()
  shown = nil
end

--- Cancel the request in progress.
local function stop_asking()
  if pending and pending.request then
    server.cancel(pending.request)
  end
  pending = nil
end

--- Show items requested at `around`, if the text there still fits them.
local function show(items, around, is_whole)
  local typed = context.typed_since(around, here())
  if not typed or #items == 0 then
    return
  end
  local suggestion = Suggestion.new(items)
  if suggestion:follow(typed) and suggestion:rest() ~= "" then
    suggestion.is_whole = is_whole
    shown = { suggestion = suggestion, context = around }
    draw()
  end
end

--- Request a completion at the cursor; `answered(items, around)` is called unless a newer request replaces it.
local function ask(trigger, answered)
  local buf, row, col = here()
  if not is_inserting() or not server.follows(buf) then
    return
  end
  local around, own = context.at(buf, row, col), {}
  stop_asking()
  pending, seen = own, { buf = buf, tick = around.tick }
  local function again()
    ask(trigger, answered)
  end
  if server.is_ready("completion", again, trigger == INVOKED) then
    server.follows(buf)
    own.request = server.complete(trigger, function(items)
      if pending == own then
        pending = nil
        if is_inserting() and server.follows(buf) then
          answered(items, around)
        end
      end
    end)
  end
end

--- Handle a change of text, cursor or popup menu in insert mode.
function M.update()
  local buf, row, col = here()
  if not is_inserting() then
    return
  elseif not server.follows(buf) then
    stop_asking()
    return drop()
  end
  local tick = vim.api.nvim_buf_get_changedtick(buf)
  if shown then
    local typed = context.typed_since(shown.context, buf, row, col)
    if typed and shown.suggestion:follow(typed) and shown.suggestion:rest() ~= "" then
      seen = { buf = buf, tick = tick }
      return draw()
    end
    drop()
  end
  if seen and seen.buf == buf and seen.tick == tick then
    return -- the cursor alone has moved
  end
  if settings.automatic and not is_covered() then
    ask(AUTOMATIC, show)
  end
end

--- Handle the beginning of insert mode.
function M.enter()
  seen = nil
  server.focus()
  M.update()
end

--- Handle leaving insert mode or the buffer, and dismiss the suggestion until the text changes.
function M.dismiss()
  stop_asking()
  drop()
end

--- Return true if a suggestion is visible, and so can be accepted.
function M.is_visible()
  return shown ~= nil
    and ghost.is_drawn()
    and server.follows(shown.context.buf)
    and context.typed_since(shown.context, here()) == shown.suggestion.typed
end

--- Insert text at the cursor unchanged: no indenting, no wrapping, no abbreviations.
local function insert(text)
  local buf, row, col = here()
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
  local sent, rest = suggestion:item().sent, suggestion:rest()
  local piece = what == "all" and rest or suggestion[what](suggestion)
  insert(piece)
  if piece == rest then
    server.execute(sent.command.command, sent.command.arguments)
    drop()
    seen = nil
  else
    suggestion:follow(suggestion.typed .. piece)
    server.notify("textDocument/didPartiallyAcceptCompletion", { item = sent, acceptedLength = suggestion:taken() })
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
      draw()
    end
    return
  end
  ask(INVOKED, function(items, around)
    if not shown or context.typed_since(around, here()) ~= "" then
      return
    end
    shown.suggestion, shown.context = shown.suggestion:joined(items), around
    shown.suggestion.is_whole = true
    shown.suggestion:cycle(step)
    draw()
  end)
end

--- Request a suggestion at the cursor at once, also at places where the model is unsure.
function M.trigger()
  if not is_inserting() then
    return notice.tell("suggestions are shown in insert mode only")
  elseif not server.follows(vim.api.nvim_get_current_buf()) then
    return notice.tell("completions are off in this buffer, or it is larger than 1 MiB")
  end
  drop()
  ask(INVOKED, function(items, around)
    show(items, around, true)
  end)
end

---@param new_settings table
function M.configure(new_settings)
  settings = new_settings
  M.dismiss()
end

return M
