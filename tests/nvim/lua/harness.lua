--- Tests inside Neovim: `nvim --headless --clean -c "luafile harness.lua"`, with the
--- files to run in $TESTS, one a line. Failures are written to stderr, and tell by the exit code.

local failures, count = {}, 0

--- Expected and found must be the same, all the way down.
function equal(expected, found, what)
  if not vim.deep_equal(expected, found) then
    local message = ("%s\n  expected %s\n  found    %s"):format(what or "", vim.inspect(expected), vim.inspect(found))
    error(message, 2)
  end
end

--- Calling must raise a message that has this text in it.
function refuses(text, call, ...)
  local is_done, message = pcall(call, ...)
  equal(false, is_done, "nothing was refused")
  equal(true, message:find(text, 1, true) ~= nil, message)
end

--- A buffer with these lines, in the current window.
function buffer(lines, options)
  local buf = vim.api.nvim_create_buf(true, false)
  vim.api.nvim_set_current_buf(buf)
  vim.api.nvim_buf_set_lines(buf, 0, -1, true, lines)
  for name, value in pairs(options or {}) do
    vim.bo[buf][name] = value
  end
  return buf
end

function test(name, run)
  count = count + 1
  local is_done, message = xpcall(run, debug.traceback)
  if not is_done then
    failures[#failures + 1] = name .. ": " .. message
  end
end

for _, file in ipairs(vim.split(vim.env.TESTS, "\n")) do
  local is_read, message = xpcall(dofile, debug.traceback, file)
  if not is_read then
    failures[#failures + 1] = file .. ": " .. message
  end
end
io.stderr:write(table.concat(failures, "\n\n"), ("\n%d tests, %d failures\n"):format(count, #failures))
vim.cmd((#failures > 0 or count == 0) and "cquit" or "quitall!")
