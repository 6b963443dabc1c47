local context = require("localspec.context")

local function at(buf, row, col)
  local around = context.at(buf, row, col)
  return { around.prefix, around.suffix }
end

test("the text on both sides of a place", function()
  local buf = buffer({ "日本 👩‍💻x", "e\204\129" })
  equal({ "日本 ", "👩‍💻x\ne\204\129" }, at(buf, 0, #"日本 "))
  equal({ "日本 👩‍💻x\ne", "\204\129" }, at(buf, 1, 1))
  equal({ "", "" }, at(buffer({}), 0, 0))
end)

local function type_at(buf, row, col, text)
  local lines = vim.split(text, "\n")
  vim.api.nvim_buf_set_text(buf, row, col, row, col, lines)
  return row + #lines - 1, #lines == 1 and col + #text or #lines[#lines]
end

test("what was typed since is known, over lines, too", function()
  local buf = buffer({ "日本", "b" })
  local asked = context.at(buf, 0, #"日本")
  equal("", context.typed_since(asked, buf, 0, #"日本"))
  local row, col = type_at(buf, 0, #"日本", "é\n x")
  equal("é\n x", context.typed_since(asked, buf, row, col))
end)

test("another place, another text, another buffer: nothing was typed along", function()
  local buf = buffer({ "abc", "def" })
  local asked = context.at(buf, 1, 1)
  equal(nil, context.typed_since(asked, buf, 1, 0))
  equal(nil, context.typed_since(asked, buf, 1, 2))
  equal(nil, context.typed_since(asked, buf, 0, 3))
  type_at(buf, 0, 0, "x")
  equal(nil, context.typed_since(asked, buf, 1, 1))
  equal(nil, context.typed_since(asked, buffer({ "abc", "def" }), 1, 1))
end)

test("only loaded files that are not excluded, compared or large may be sent", function()
  equal(true, context.allowed(buffer({}), {}))
  equal(false, context.allowed(buffer({}, { buftype = "nofile" }), {}))
  equal(false, context.allowed(buffer({}, { readonly = true }), {}))
  equal(false, context.allowed(buffer({}, { modifiable = false }), {}))
  equal(false, context.allowed(buffer({}, { filetype = "diary" }), { "diary" }))
  equal(true, context.allowed(buffer({ ("x"):rep(1024 * 1024 - 1) }), {}), "1 MiB")
  equal(false, context.allowed(buffer({ ("x"):rep(1024 * 1024) }), {}))
  local buf = buffer({})
  vim.cmd("diffthis")
  equal(false, context.allowed(buf, {}))
  vim.cmd("diffoff")
  vim.b[buf].localspec_enabled = false
  equal(false, context.allowed(buf, {}))
  vim.b[buf].localspec_enabled = 0
  equal(false, context.allowed(buf, {}), "as Vim script has it")
  vim.api.nvim_buf_delete(buf, { force = true })
  equal(false, context.allowed(buf, {}), "it is gone")
end)
