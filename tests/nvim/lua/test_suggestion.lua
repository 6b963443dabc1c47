local Suggestion = require("localspec.suggestion")

local function suggestion(...)
  local items = {}
  for number, text in ipairs({ ... }) do
    items[number] = { insertText = text }
  end
  return Suggestion.new(items)
end

test("the units of UTF-16 are counted, not bytes", function()
  for text, units in pairs({ [""] = 0, abc = 3, ["é"] = 1, ["e\204\129"] = 2, ["日本"] = 2, ["👩‍💻"] = 5, ["a\nb"] = 3 }) do
    local it = suggestion(text)
    it:follow(text)
    equal(units, it:taken(), text)
  end
end)

test("what is typed along leaves the rest, and typing back brings it back", function()
  local it = suggestion("日本 = x")
  equal(true, it:follow("日"))
  equal("本 = x", it:rest())
  equal(true, it:follow(""))
  equal("日本 = x", it:rest())
  equal(false, it:follow("x"))
  equal(true, it:follow("日本 = x"))
  equal("", it:rest())
end)

test("typing on decides between items", function()
  local it = suggestion("return a", "return b", "raise")
  equal(true, it:follow("return b"))
  equal(2, it.at)
  equal(true, it:follow("ra"))
  equal("ise", it:rest())
end)

test("cycling goes round among those that begin as was typed", function()
  local it = suggestion("return a", "raise", "return b")
  it:follow("ret")
  equal(true, it:cycle(1))
  equal("urn b", it:rest())
  equal(true, it:cycle(1))
  equal("urn a", it:rest())
  equal(true, it:cycle(-1))
  equal("urn b", it:rest())
  equal(false, suggestion("one"):cycle(1))
  equal(false, suggestion("one", "one"):cycle(1))
end)

test("more items join behind the current one, whose beginning is not forgotten", function()
  local it = suggestion("return a")
  it:follow("re")
  it = it:joined({ { insertText = "turn a" }, { insertText = "ise" } })
  equal({ "return a", "turn a", "re" }, { it:item().sent.insertText, it:rest(), it:item().before })
  equal(2, #it.items)
  it:follow("tu")
  equal(4, it:taken())
  it:follow("")
  it:cycle(1)
  it:follow("ise")
  equal({ "ise", 3 }, { it:item().sent.insertText, it:taken() })
end)

test("words and lines", function()
  local cases = {
    word = {
      ["foo.bar"] = "foo",
      [".bar"] = ".",
      ["  foo()"] = "  foo",
      ["):\n    x"] = "):",
      ["\n    return x"] = "\n    return",
      ["_a1 b"] = "_a1",
      ["naïve x"] = "naïve",
      ["日本 語"] = "日本",
      ["e\204\129t x"] = "e\204\129t",
      ["👩‍💻 x"] = "👩‍💻",
      ["   "] = "   ",
      ["== 1"] = "==",
    },
    line = { ["a b\nc"] = "a b", ["\n  c\nd"] = "\n  c", ["\n\nx"] = "\n", ["last"] = "last" },
  }
  for what, expected in pairs(cases) do
    for text, part in pairs(expected) do
      local it = suggestion(text)
      equal(part, it[what](it), text)
    end
  end
end)

test("word by word, and line by line, all is taken in the end", function()
  for _, what in ipairs({ "word", "line" }) do
    local text = "\n  日本 = f(x)\n\n👩‍💻 .."
    local it, typed = suggestion(text), ""
    for _ = 1, #text do
      if it:rest() ~= "" then
        typed = typed .. it[what](it)
        equal(true, it:follow(typed))
      end
    end
    equal(text, typed)
  end
end)
