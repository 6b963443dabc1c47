--- `:checkhealth localspec`

local localspec = require("localspec")

local M = {}

local health = vim.health

--- Check the command; returns true if it can be run.
local function check_command(settings)
  health.start("The command")
  local program = settings.command[1]
  if vim.fn.executable(program) == 0 then
    health.error(("the command %s was not found"):format(program), {
      'Install localspec (README, "Install"), or set `command` to its path.',
    })
    return false
  end
  local output = vim.fn.system(vim.list_extend(vim.deepcopy(settings.command), { "--version" }))
  if vim.v.shell_error ~= 0 then
    health.error(("%s --version failed: %s"):format(table.concat(settings.command, " "), vim.trim(output)))
    return false
  end
  health.ok(("%s: %s"):format(vim.fn.exepath(program), vim.trim(output)))
  return true
end

--- Show what `localspec doctor` finds: backends, models, the daemon.
local function check_rest(settings)
  health.start("localspec doctor")
  local output = vim.fn.system(vim.list_extend(vim.deepcopy(settings.command), { "doctor" }))
  local report = vim.v.shell_error == 0 and health.ok or health.error
  report(vim.trim(output))
end

local function check_keys(settings)
  health.start("Keys")
  for name, key in vim.spairs(settings.keys) do
    if key then
      local mapping = vim.fn.maparg(key, "i", false, true)
      if vim.startswith(mapping.desc or "", "localspec: ") then
        health.ok(("%s: %s"):format(key, name:gsub("_", " ")))
      else
        health.warn(("%s was mapped to something else after localspec was set up: %s"):format(key, name:gsub("_", " ")), {
          "Load localspec later, set another key under `keys`, or map <Plug>(localspec-" .. name:gsub("_", "-") .. ").",
        })
      end
    end
  end
end

function M.check()
  local settings = localspec.settings()
  if check_command(settings) then
    check_rest(settings)
  end
  check_keys(settings)
end

return M
