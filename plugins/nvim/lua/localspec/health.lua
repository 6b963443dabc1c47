--- `:checkhealth localspec`

local ghost = require("localspec.ghost")
local localspec = require("localspec")

local M = {}

-- Neovim 0.9 and older have other names.
local health = vim.health or require("health")
local start = health.start or health.report_start
local ok = health.ok or health.report_ok
local info = health.info or health.report_info
local warn = health.warn or health.report_warn
local fail = health.error or health.report_error

local function check_neovim()
  start("Neovim")
  local version = vim.version()
  local name = ("Neovim %d.%d.%d"):format(version.major, version.minor, version.patch)
  if ghost.HAS_INLINE then
    ok(name .. ": in the middle of a line, the text after the cursor moves aside for a suggestion")
  else
    warn(name .. ": in the middle of a line, the text after a suggestion is drawn without its colours", {
      "Update to Neovim 0.10 or newer to keep them. All else is the same.",
    })
  end
end

--- Check the command; returns true if it can be run.
local function check_command(settings)
  start("The command")
  local program = settings.command[1]
  if vim.fn.executable(program) == 0 then
    fail(("the command %s was not found"):format(program), {
      'Install localspec (README, "Install"), or set `command` to its path.',
    })
    return false
  end
  local output = vim.fn.system(vim.list_extend(vim.deepcopy(settings.command), { "--version" }))
  if vim.v.shell_error ~= 0 then
    fail(("%s --version failed: %s"):format(table.concat(settings.command, " "), vim.trim(output)))
    return false
  end
  ok(("%s: %s"):format(vim.fn.exepath(program), vim.trim(output)))
  return true
end

--- Show what `localspec doctor` finds: backends, models, the daemon.
local function check_rest(settings)
  start("localspec doctor")
  local output = vim.fn.system(vim.list_extend(vim.deepcopy(settings.command), { "doctor" }))
  local report = vim.v.shell_error == 0 and ok or fail
  report(vim.trim(output))
end

local function check_keys(settings)
  start("Keys")
  local names = vim.tbl_keys(settings.keys)
  table.sort(names)
  local mapped = 0
  for _, name in ipairs(names) do
    local key = settings.keys[name]
    if key then
      mapped = mapped + 1
      local mapping = vim.fn.maparg(key, "i", false, true)
      if vim.startswith(mapping.desc or "", "localspec: ") then
        ok(("%s: %s"):format(key, name:gsub("_", " ")))
      else
        warn(("%s was mapped to something else after localspec was set up: %s"):format(key, name:gsub("_", " ")), {
          "Load localspec later, set another key under `keys`, or map <Plug>(localspec-" .. name:gsub("_", "-") .. ").",
        })
      end
    end
  end
  if mapped == 0 then
    info("no key is mapped; map the <Plug>(localspec-…) that you want")
  end
end

function M.check()
  local settings = localspec.settings()
  check_neovim()
  if check_command(settings) then
    check_rest(settings)
  end
  check_keys(settings)
end

return M
