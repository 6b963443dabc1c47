local ghost = require("localspec.ghost")

local function drawn(buf)
  local namespace = vim.api.nvim_create_namespace("localspec")
  local marks = vim.api.nvim_buf_get_extmarks(buf, namespace, 0, -1, { details = true })
  equal(true, #marks <= 1)
  return marks[1] and marks[1][4]
end

test("tabs are as wide as they are where they stand", function()
  buffer({}, { tabstop = 4 })
  equal("    x", ghost.expanded("\tx", 0))
  equal("  x", ghost.expanded("\tx", 2))
  equal("日本    x", ghost.expanded("日本\tx", 0))
  equal("a   b   ", ghost.expanded("a\tb\t", 0))
end)

test("what cannot be seen is named, and what ends a line is not", function()
  equal("^A", ghost.expanded("\1", 0))
  equal("a^@b", ghost.expanded("a\0b", 0))
  equal("x", ghost.expanded("x\r", 0))
end)

test("a line's end takes it all; further lines come below", function()
  local buf = buffer({ "a" })
  ghost.draw(buf, 0, 1, "b\n\n  c")
  local mark = drawn(buf)
  equal("overlay", mark.virt_text_pos)
  equal({ { "b", "LocalspecSuggestion" } }, mark.virt_text)
  equal({ { { "", "LocalspecSuggestion" } }, { { "  c", "LocalspecSuggestion" } } }, mark.virt_lines)
  ghost.clear()
  equal(nil, drawn(buf))
end)

test("in the middle of a line what stands behind moves aside, or is drawn again", function()
  local buf = buffer({ "f(日)\tx" }, { tabstop = 8 })
  ghost.draw(buf, 0, #"f(日", ", b")
  local mark = drawn(buf)
  if ghost.HAS_INLINE then
    equal({ "inline", { { ", b", "LocalspecSuggestion" } } }, { mark.virt_text_pos, mark.virt_text })
  else
    equal("overlay", mark.virt_text_pos)
    equal({ { ", b", "LocalspecSuggestion" }, { ")        x", "LocalspecRest" } }, mark.virt_text)
  end
end)
