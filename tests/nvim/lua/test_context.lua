local context = require("localspec.context")
local ring = require("localspec.ring")

local function at(buf, row, col)
  local around = context.at(buf, row, col)
  return { around.prefix, around.suffix }
end

local function numbered(count)
  local lines = {}
  for number = 1, count do
    lines[number] = "line " .. number
  end
  return lines
end

test("the text on both sides of a place, as the file has it", function()
  local buf = buffer({ "日本 👩‍💻x", "e\204\129" })
  equal({ "日本 ", "👩‍💻x\ne\204\129\n" }, at(buf, 0, #"日本 "))
  equal({ "日本 👩‍💻x\ne", "\204\129\n" }, at(buf, 1, 1))
  vim.bo[buf].fileformat = "dos"
  equal({ "日本 👩‍💻x\r\n", "e\204\129\r\n" }, at(buf, 1, 0))
  vim.bo[buf].endofline, vim.bo[buf].fixendofline = false, false
  equal({ "日本 👩‍💻x\r\n", "e\204\129" }, at(buf, 1, 0))
end)

test("a carriage return that is text is sent as such, and so is a NUL", function()
  equal({ "a\r\n", "\0b\n" }, at(buffer({ "a\r", "\0b" }), 1, 0))
end)

test("an empty buffer", function()
  equal({ "", "\n" }, at(buffer({}), 0, 0))
end)

test("the window is of 256 lines before and 64 after, and its beginning keeps still", function()
  for row, window in pairs({ [0] = { 0, 65 }, [255] = { 0, 320 }, [319] = { 0, 384 }, [320] = { 64, 385 }, [383] = { 64, 448 }, [384] = { 128, 449 } }) do
    equal(window, { context.window(row) }, row)
  end
  local around = context.at(buffer(numbered(1000)), 400, 3)
  equal("line 129\n", around.prefix:sub(1, 9))
  equal("lin", around.prefix:sub(-3))
  equal("e 401\nline 402\n", around.suffix:sub(1, 15))
  equal("line 465\n", around.suffix:sub(-9))
end)

test("what is too large is not looked at", function()
  equal(nil, context.at(buffer({ ("x"):rep(context.LARGEST) }), 0, 0))
  local many = {}
  for number = 1, context.LARGEST / 64 + 1 do
    many[number] = ("x"):rep(63)
  end
  equal(nil, context.at(buffer(many), 0, 0), "the window is small, the file is not")
  equal(nil, context.block(buffer(many), 0))
  many[#many] = nil
  equal("table", type(context.at(buffer(many), 0, 0)), "1 MiB")
  equal(nil, context.block(buffer({ ("x"):rep(context.LARGEST_BLOCK) }), 0))
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
  vim.bo[buf].fileformat = "dos"
  asked = context.at(buf, row, col)
  row, col = type_at(buf, row, col, "\ny")
  equal("\r\ny", context.typed_since(asked, buf, row, col))
end)

test("it is known beside where the window would shift", function()
  local buf = buffer(numbered(400))
  local asked = context.at(buf, 319, 8)
  local row, col = type_at(buf, 319, 8, "\nx")
  equal("\nx", context.typed_since(asked, buf, row, col))
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

test("what is nobody's own text, secret or excluded is not told", function()
  equal(true, context.allowed(buffer({}), {}))
  equal(false, context.allowed(buffer({}, { buftype = "nofile" }), {}))
  equal(false, context.allowed(buffer({}, { readonly = true }), {}))
  equal(false, context.allowed(buffer({}, { modifiable = false }), {}))
  equal(false, context.allowed(buffer({}, { filetype = "diary" }), { "diary" }))
  local buf = buffer({})
  vim.b[buf].localspec_enabled = false
  equal(false, context.allowed(buf, {}))
  vim.b[buf].localspec_enabled = 0
  equal(false, context.allowed(buf, {}), "as Vim script has it")
  vim.api.nvim_buf_delete(buf, { force = true })
  equal(false, context.allowed(buf, {}), "it is gone")
  for name, is_allowed in pairs({ [".env.local"] = false, [".ENV"] = false, id_rsa = false, id_ed25519_sk = false, ["id_map.ts"] = true, ["x.pem"] = false, ["x.c"] = true }) do
    buf = buffer({})
    vim.api.nvim_buf_set_name(buf, "/nowhere/" .. name)
    equal(is_allowed, context.allowed(buf, {}), name)
  end
end)

test("a buffer without a name has one of its own", function()
  equal("untitled:" .. buffer({}), context.path(vim.api.nvim_get_current_buf()))
end)

test("the ring has the blocks of other files, the newest first, two a file", function()
  ring.clear()
  local here, other = buffer({ "here" }), buffer(numbered(200))
  vim.api.nvim_buf_set_name(other, "/nowhere/other.py")
  ring.visit(here, 0)
  for _, row in ipairs({ 0, 70, 199, 66 }) do
    ring.visit(other, row)
  end
  local extra = ring.extra(here, {})
  equal({ 2, "/nowhere/other.py" }, { #extra, extra[1].path })
  equal("line 65\n", extra[1].text:sub(1, 8))
  equal("line 128\n", extra[1].text:sub(-9))
  equal("line 193\n", extra[2].text:sub(1, 9))
  equal({}, ring.extra(other, { vim.bo[here].filetype }), "the other one is excluded by its language")
end)

test("the ring has nothing of what is compared", function()
  ring.clear()
  local compared = buffer({ "text" })
  ring.visit(compared, 0)
  vim.cmd("diffthis")
  equal({}, ring.extra(0, {}))
  vim.cmd("split")
  local here = buffer({ "here" })
  vim.cmd("diffoff")
  equal({}, ring.extra(here, {}), "in another window")
  vim.cmd("diffoff! | only")
  equal(1, #ring.extra(here, {}))
end)

test("the ring has sixteen blocks at most, and none of what is gone", function()
  ring.clear()
  local buffers = {}
  for number = 1, 40 do
    buffers[number] = buffer({ "text " .. number })
    ring.visit(buffers[number], 0)
  end
  equal({ 16, "text 40\n" }, { #ring.extra(0, {}), ring.extra(0, {})[1].text })
  vim.api.nvim_buf_delete(buffers[40], { force = true })
  equal("text 39\n", ring.extra(0, {})[1].text)
end)
