--- Names of files that hold secrets and little else, of which nothing is told: the same that localspec never learns
--- (the lists of `localspec/memory/known/names.json`). Samples of environments count as such.

local M = {}

local function patterns(names)
  return vim.split(vim.trim(names), "%s+")
end

local SECRET = patterns([[
  .git-credentials .vault-token .vault_pass .dev.vars .envrc .netrc _netrc .npmrc .pypirc .pgpass .htpasswd
  .dockercfg .dockerconfigjson .s3cfg .boto .my.cnf .mylogin.cnf .trc .tugboat .terraformrc terraform.rc
  rclone.conf kubeconfig shadow credentials credentials.json credentials.toml credentials.xml secrets.json
  secrets.toml secrets.yaml secrets.yml secret_token.rb sftp-config.json wp-config.php localsettings.php
  proftpdpasswd otr.private_key robomongo.json filezilla.xml recentservers.xml .dbeaver-data-sources.xml
  dbeaver-data-sources.xml .bash_history .zsh_history .sh_history .mysql_history .psql_history .irb_history
  .python_history .node_repl_history id_rsa* id_dsa* id_ecdsa* id_ed25519* *_rsa *_dsa *_ecdsa *_ed25519 *.env
  *.pem *.key *.keypair *.p8 *.p12 *.pfx *.pkcs12 *.ppk *.kdb *.kdbx *.keystore *.keyring *.jks *.bcfks *.gpg
  *.asc *.ovpn *.tblk *.tfvars *.tfvars.json *.tfstate *.psafe3 *.agilekeychain *.keychain *.kwallet *.bek *.fve
]])
local HARMLESS = patterns([[
  *.pub *.py
]])
local ALWAYS = patterns([[
  .env*
]])
local COPIES = patterns([[
  ~ .bak .backup .old .orig .save .swp .swo .tmp
]])

--- `*` is anything, once in a pattern.
local function fits(name, pattern)
  local star = pattern:find("*", 1, true)
  if not star then
    return name == pattern
  end
  local beginning, ending = pattern:sub(1, star - 1), pattern:sub(star + 1)
  return vim.startswith(name, beginning) and vim.endswith(name, ending) and #name >= #pattern - 1
end

local function is_one_of(name, list)
  for _, pattern in ipairs(list) do
    if fits(name, pattern) then
      return true
    end
  end
  return false
end

--- The name of what a file is a copy of, as editors and people name them.
local function original(name)
  for _, ending in ipairs(COPIES) do
    if vim.endswith(name, ending) then
      return original(name:sub(1, -#ending - 1))
    end
  end
  return name
end

---@param name string a file's name, without its directory
function M.is_secret(name)
  name = original(name:lower())
  return is_one_of(name, ALWAYS) or (is_one_of(name, SECRET) and not is_one_of(name, HARMLESS))
end

return M
