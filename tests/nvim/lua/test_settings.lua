local settings = require("localspec.settings")

test("all have a default", function()
  local found = settings.checked({})
  equal({ "localspec" }, found.command)
  equal({ true, true, {}, 5000, true, false }, {
    found.enabled, found.automatic, found.exclude, found.max_ms, found.multiline, found.popup_menu,
  })
  equal("<Tab>", found.keys.accept)
end)

test("keys: none, all, or some others", function()
  equal({}, settings.checked({ keys = false }).keys)
  equal(settings.checked({}).keys, settings.checked({ keys = true }).keys)
  local keys = settings.checked({ keys = { accept = "<C-y>", next = false } }).keys
  equal({ "<C-y>", false, "<M-[>" }, { keys.accept, keys.next, keys.previous })
end)

test("a misspelt one is refused with those that exist", function()
  refuses('there is no setting "multilin", only: automatic, command, enabled', settings.checked, { multilin = true })
  refuses('there is no setting "acept" in keys, only: accept, accept_line', settings.checked, { keys = { acept = "x" } })
end)

test("a wrong value is refused with what it takes", function()
  refuses("enabled must be a boolean, not a number", settings.checked, { enabled = 1 })
  refuses("model must be a string", settings.checked, { model = {} })
  refuses("command must be a program, or a list", settings.checked, { command = {} })
  refuses("command must be", settings.checked, { command = "" })
  refuses("exclude must be a list of filetypes", settings.checked, { exclude = "lua" })
  refuses("exclude must be", settings.checked, { exclude = { lua = true } })
  for _, value in ipairs({ 0, 1.5, 600001, "5" }) do
    refuses("max_ms must be a whole number from 1 to 600000", settings.checked, { max_ms = value })
  end
  refuses("keys must be", settings.checked, { keys = "x" })
  refuses("keys.accept must be a key", settings.checked, { keys = { accept = 3 } })
  refuses("setup takes a table", settings.checked, 3)
end)
