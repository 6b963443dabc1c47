local bridge = require("localspec.bridge")

--- Run with a program in the daemon's place that answers nothing.
local function without_answers(run)
  local program = vim.fn.tempname()
  vim.fn.writefile({ "#!/bin/sh", "exec cat >/dev/null" }, program)
  vim.fn.setfperm(program, "rwx------")
  bridge.configure({ command = { program } })
  run()
  bridge.stop()
end

--- What was told so far, by the callbacks of requests.
local function listener()
  local told = {}
  return told, function(name)
    return function(error)
      told[#told + 1] = name .. " " .. error.data.code
    end
  end
end

test("what is given up before there is a daemon ends, once", function()
  local told, tells = listener()
  without_answers(function()
    local request = bridge.request("memory/prime", {}, tells("prime"))
    local other = bridge.request("models/list", {}, tells("models"))
    equal({}, told)
    bridge.cancel(request)
    bridge.cancel(request)
    equal({ "prime lost" }, told)
    bridge.cancel(other)
  end)
  equal({ "prime lost", "models lost" }, told)
end)

test("what is asked again before there is a daemon takes the earlier one's place", function()
  local told, tells = listener()
  without_answers(function()
    local first = bridge.request("models/list", {}, tells("first"))
    bridge.request("models/list", {}, tells("second"))
    bridge.cancel(first)
    equal({ "first lost" }, told)
  end)
  equal({ "first lost", "second lost" }, told)
end)

test("what is loaded for a request is not told of when that has ended", function()
  local status, is_answered = require("localspec.status"), false
  local program = vim.fn.tempname()
  vim.fn.writefile({
    "#!/bin/sh",
    "read initialize",
    [[echo '{"jsonrpc": "2.0", "id": 1, "result": {"server": {"version": "1"}}}']],
    "read warm",
    [[echo '{"jsonrpc": "2.0", "method": "model/progress", "params": {"fraction": 0.5}}']],
    [[echo '{"jsonrpc": "2.0", "id": 2, "result": {}}']],
    "exec cat >/dev/null",
  }, program)
  vim.fn.setfperm(program, "rwx------")
  buffer({})
  bridge.configure({ command = { program } })
  bridge.request("completion/warm", {}, function(_, result)
    is_answered = result ~= nil
  end)
  vim.wait(30000, function()
    return is_answered
  end, 10)
  equal({ true, "localspec" }, { is_answered, status.line() })
  bridge.stop()
end)
