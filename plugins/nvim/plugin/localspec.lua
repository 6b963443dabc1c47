if vim.g.loaded_localspec then
  return
end
vim.g.loaded_localspec = true

vim.api.nvim_create_user_command("Localspec", function(command)
  require("localspec.commands").run(command.args)
end, {
  nargs = "*",
  complete = function(lead, line)
    return require("localspec.commands").complete(lead, line)
  end,
  desc = "localspec: toggle, enable, disable, status, trigger, restart, model, prime, forget",
})

-- At the first InsertEnter the user's configuration has called setup, if it does; else defaults hold.
vim.api.nvim_create_autocmd("InsertEnter", {
  once = true,
  callback = function()
    if not require("localspec").is_set_up() then
      require("localspec").setup()
      require("localspec.completion").enter()
    end
  end,
})
