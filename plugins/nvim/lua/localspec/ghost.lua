--- Draws a suggestion behind the cursor without changing the buffer.

local M = {}

local GROUP = "LocalspecSuggestion"
local REST = "LocalspecRest"
--- Inline virtual text, which moves the rest of the line, came with Neovim 0.10.
M.HAS_INLINE = vim.fn.has("nvim-0.10") == 1

local namespace = vim.api.nvim_create_namespace("localspec")
---@type integer? the buffer with the drawn suggestion
local drawn_in

--- The style of comments, or grey where those look like other text: Neovim's own colours from 0.10 on have none for
--- them without true colour.
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
  vim.api.nvim_set_hl(0, REST, { default = true, link = "Normal" })
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
  local first = { { M.expanded(lines[1], column), GROUP } }
  local behind = line:sub(col + 1)
  if behind ~= "" and not M.HAS_INLINE then
    -- The rest of the line cannot be moved: the suggestion covers it, and it is drawn again behind that.
    local width = vim.fn.strdisplaywidth(first[1][1], column)
    first[2] = { M.expanded(vim.fn.strcharpart(behind, 0, vim.o.columns), column + width), REST }
  end
  local below = {}
  for number = 2, #lines do
    -- An empty line needs a piece, too.
    below[#below + 1] = { { M.expanded(lines[number], 0), GROUP } }
  end
  vim.api.nvim_buf_set_extmark(buf, namespace, row, col, {
    virt_text = first,
    virt_text_pos = (M.HAS_INLINE and behind ~= "") and "inline" or "overlay",
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
