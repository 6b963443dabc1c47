--- Which files, by their names, hold secrets and little else: of them nothing is told. The same that localspec never
--- learns (`localspec/memory/texts.py`), and all whose name begins with `.env`.

local M = {}

local function set(names)
  local is_in = {}
  for _, name in ipairs(vim.split(vim.trim(names), "%s+")) do
    is_in[name] = true
  end
  return is_in
end

local NAMES = set([[
  .git-credentials .vault-token kubeconfig credentials.json secrets.json secrets.toml secrets.yaml secrets.yml
  .netrc .npmrc .pypirc .pgpass .htpasswd shadow credentials
]])
local ENDINGS = set("tfvars tfstate pem key p12 pfx kdbx keystore jks gpg asc ovpn")
local KEYS = { "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519" }
local PUBLIC_ENDINGS = set("pub py")

---@param name string a file's name, without its directory
function M.is_secret(name)
  name = name:lower()
  local ending = name:match("%.([^.]*)$")
  if vim.startswith(name, ".env") then
    return true
  elseif PUBLIC_ENDINGS[ending] then
    return false
  end
  for _, beginning in ipairs(KEYS) do
    if vim.startswith(name, beginning) then
      return true
    end
  end
  return NAMES[name] or ENDINGS[ending]
end

return M
