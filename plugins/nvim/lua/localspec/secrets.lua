--- Names of files that hold secrets and little else, which are never sent: the same that localspec never learns
--- (the lists of `localspec/memory/known/names.json`). Sample `.env` files count, too.

local M = {}

local function patterns(names)
  return vim.split(vim.trim(names), "%s+")
end

local SECRET = patterns([[
  .git-credentials .vault-token .vault_pass .dev.vars .envrc .netrc _netrc .npmrc .pypirc .pgpass .htpasswd
  .dockercfg .dockerconfigjson .s3cfg .boto .my.cnf .mylogin.cnf .trc .tugboat .terraformrc terraform.rc
  rclone.conf kubeconfig shadow credentials credentials.* secrets.* secret.json secret.toml secret.yaml
  secret.yml client_secret*.json service-account*.json service_account*.json auth.json sftp-config.json
  proftpdpasswd otr.private_key robomongo.json filezilla.xml recentservers.xml .dbeaver-data-sources.xml
  dbeaver-data-sources.xml .bash_history .zsh_history .sh_history .mysql_history .psql_history .irb_history
  .python_history .node_repl_history id_rsa* id_dsa* id_ecdsa* id_ed25519* *_rsa *_dsa *_ecdsa *_ed25519 *.env
  *.env.* *.pem *.key *.keypair *.p8 *.p12 *.pfx *.pkcs12 *.ppk *.kdb *.kdbx *.keystore *.keyring *.jks *.bcfks
  *.gpg *.asc *.ovpn *.tblk *.tfvars *.tfvars.json *.tfstate *.psafe3 *.agilekeychain *.keychain *.kwallet *.bek
  *.fve vault.yml vault.yaml
]])
local HARMLESS = patterns([[
  *.pub *.py *.pyi *.js *.jsx *.mjs *.cjs *.ts *.tsx *.mts *.cts *.vue *.svelte *.go *.rs *.c *.h *.cc *.cpp
  *.cxx *.hh *.hpp *.m *.mm *.cs *.fs *.vb *.java *.kt *.kts *.scala *.groovy *.clj *.swift *.dart *.rb *.php
  *.pl *.pm *.lua *.jl *.r *.hs *.ml *.mli *.elm *.erl *.ex *.zig *.nim *.tf *.nix *.proto *.graphql *.html
  *.css *.scss *.md *.rst *.adoc
]])
local ALWAYS = patterns([[
  .env* secret_token.rb wp-config.php localsettings.php secrets.h arduino_secrets.h
]])
local COPIES = patterns([[
  ~ .bak .backup .old .orig .save .swp .swo .tmp
]])

--- Return true if a name fits a pattern, in which each `*` stands for any text.
local function fits(name, pattern)
  local parts = vim.split(pattern, "*", { plain = true })
  if #parts == 1 then
    return name == pattern
  end
  local beginning, ending = parts[1], parts[#parts]
  local at, last = #beginning + 1, #name - #ending
  if at > last + 1 or not vim.startswith(name, beginning) or not vim.endswith(name, ending) then
    return false
  end
  for i = 2, #parts - 1 do
    local _, found = name:find(parts[i], at, true)
    if not found or found > last then
      return false
    end
    at = found + 1
  end
  return true
end

local function is_one_of(name, list)
  for _, pattern in ipairs(list) do
    if fits(name, pattern) then
      return true
    end
  end
  return false
end

--- The name without the endings of copies, as editors and users add them.
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
