-- A suggestion looks like a comment, and never like what is written.

local function colour(name, is_true)
  return vim.api.nvim_get_hl_by_name(name, is_true).foreground
end

test("it has a colour of its own in every terminal", function()
  for _, true_colour in ipairs({ false, true }) do
    vim.o.termguicolors = true_colour
    vim.cmd("highlight clear LocalspecSuggestion")
    require("localspec.ghost").define_highlights()
    local shown = colour("LocalspecSuggestion", true_colour)
    equal(true, shown ~= nil and shown ~= colour("Normal", true_colour))
  end
end)

test("it is that of comments where those have one", function()
  vim.o.termguicolors = false
  vim.cmd("highlight Comment ctermfg=6 | highlight clear LocalspecSuggestion")
  require("localspec.ghost").define_highlights()
  equal(6, colour("LocalspecSuggestion", false))
end)

test("what somebody has chosen stays", function()
  vim.cmd("highlight LocalspecSuggestion ctermfg=3")
  require("localspec.ghost").define_highlights()
  equal(3, colour("LocalspecSuggestion", false))
end)
