--- Places that the cursor visited lately in other files, whose text is sent beside the current file's.

local context = require("localspec.context")

local M = {}

local BLOCKS, BLOCKS_A_FILE = 16, 2

---@type {buf: integer, block: integer}[] the newest first
local visited = {}

--- Record a visit of the cursor, or an edit, at this 0-based row.
function M.visit(buf, row)
  local entry = { buf = buf, block = context.block_of(row) }
  local kept, of_file = { entry }, 1
  for _, other in ipairs(visited) do
    local same_file = other.buf == buf
    if #kept < BLOCKS + BLOCKS_A_FILE and not (same_file and (other.block == entry.block or of_file == BLOCKS_A_FILE)) then
      kept[#kept + 1] = other
      of_file = of_file + (same_file and 1 or 0)
    end
  end
  visited = kept
end

--- Return true if a buffer is shown in diff mode.
local function is_compared(buf)
  for _, window in ipairs(vim.fn.win_findbuf(buf)) do
    if vim.wo[window].diff then
      return true
    end
  end
  return false
end

local function is_allowed(buf, exclude)
  return context.allowed(buf, exclude) and not is_compared(buf)
end

--- Blocks of files other than `buf`'s, the newest first.
---@param exclude string[]
---@return {path: string, text: string}[]
function M.extra(buf, exclude)
  local found = {}
  for _, entry in ipairs(visited) do
    if #found < BLOCKS and entry.buf ~= buf and is_allowed(entry.buf, exclude) then
      local text = context.block(entry.buf, entry.block)
      if text and text:find("%S") then
        found[#found + 1] = { path = context.path(entry.buf), text = text }
      end
    end
  end
  return found
end

function M.clear()
  visited = {}
end

return M
