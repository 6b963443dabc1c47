--- Draws a suggestion behind the cursor without changing the buffer.

local M = {}

local GROUP = "LocalspecSuggestion"

local namespace = vim.api.nvim_create_namespace("localspec")
---@type integer? the buffer with the drawn suggestion
local drawn_in

--- The style of comments, or grey where those look like other text: Neovim's own colours have none for them without
--- true colour.
local function dim()
  local comment = vim.fn.synIDtrans(vim.fn.hlID("Comment"))
  if vim.o.termguicolors or vim.fn.synIDattr(comment, "fg", "cterm") ~= "" then
    return { default = true, link = "Comment" }
  end
  local gui = vim.fn.synIDattr(comment, "fg#", "gui")
  return { default = true, fg = gui ~= "" and gui or "Gray", ctermfg = "DarkGray" }
end

function M.define_highlights()
  vim.api.nvim_set_hl(0, GROUP, dim())
end

--- A line as it is drawn from this display column on, with tabs expanded: virtual text has none.
function M.expanded(line, column)
  local shown = {}
  line = line:gsub("\r$", ""):gsub("%z", "\n") -- Neovim stores a NUL as \n
  for piece, tab in line:gmatch("([^\t]*)(\t?)") do
    shown[#shown + 1] = vim.fn.strtrans(piece)
    column = column + vim.fn.strdisplaywidth(shown[#shown], column)
    if tab ~= "" then
      local width = vim.fn.strdisplaywidth("\t", column)
      shown[#shown + 1] = (" "):rep(width)
      column = column + width
    end
  end
  return table.concat(shown)
end

--- Draw `text` at a 0-based place; `col` is in bytes.
function M.draw(buf, row, col, text)
  M.clear()
  local lines = vim.split(text, "\n", { plain = true })
  local line = vim.api.nvim_buf_get_lines(buf, row, row + 1, false)[1] or ""
  local column = vim.fn.strdisplaywidth(line:sub(1, col))
  local below = vim.tbl_map(function(each)
    return { { M.expanded(each, 0), GROUP } } -- an empty line needs a piece, too
  end, vim.list_slice(lines, 2))
  vim.api.nvim_buf_set_extmark(buf, namespace, row, col, {
    virt_text = { { M.expanded(lines[1], column), GROUP } },
    virt_text_pos = col < #line and "inline" or "overlay",
    virt_lines = #below > 0 and below or nil,
    hl_mode = "combine",
  })
  drawn_in = buf
end

function M.is_drawn()
  return drawn_in ~= nil
end

function M.clear()
  if drawn_in and vim.api.nvim_buf_is_valid(drawn_in) then
    vim.api.nvim_buf_clear_namespace(drawn_in, namespace, 0, -1)
  end
  drawn_in = nil
end

return M
