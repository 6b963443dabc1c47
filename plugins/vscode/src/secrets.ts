/** Files that hold secrets and little else, by their names: the list of `localspec/memory/known/names.json`. */

const SECRET = [
  ...[".git-credentials", ".vault-token", ".vault_pass", ".dev.vars", ".envrc", ".netrc", "_netrc", ".npmrc"],
  ...[".pypirc", ".pgpass", ".htpasswd", ".dockercfg", ".dockerconfigjson", ".s3cfg", ".boto", ".my.cnf"],
  ...[".mylogin.cnf", ".trc", ".tugboat", ".terraformrc", "terraform.rc", "rclone.conf", "kubeconfig"],
  ...["shadow", "credentials", "credentials.*", "secrets.*", "secret.json", "secret.toml", "secret.yaml"],
  ...["secret.yml", "client_secret*.json", "service-account*.json", "service_account*.json", "auth.json"],
  ...["sftp-config.json", "proftpdpasswd", "otr.private_key", "robomongo.json", "filezilla.xml"],
  ...["recentservers.xml", ".dbeaver-data-sources.xml", "dbeaver-data-sources.xml", ".bash_history"],
  ...[".zsh_history", ".sh_history", ".mysql_history", ".psql_history", ".irb_history", ".python_history"],
  ...[".node_repl_history", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa"],
  ...["*_ed25519", "*.env", "*.env.*", "*.pem", "*.key", "*.keypair", "*.p8", "*.p12", "*.pfx", "*.pkcs12"],
  ...["*.ppk", "*.kdb", "*.kdbx", "*.keystore", "*.keyring", "*.jks", "*.bcfks", "*.gpg", "*.asc", "*.ovpn"],
  ...["*.tblk", "*.tfvars", "*.tfvars.json", "*.tfstate", "*.psafe3", "*.agilekeychain", "*.keychain"],
  ...["*.kwallet", "*.bek", "*.fve", "vault.yml", "vault.yaml"],
];
const HARMLESS = [
  ...["*.pub", "*.py", "*.pyi", "*.js", "*.jsx", "*.mjs", "*.cjs", "*.ts", "*.tsx", "*.mts", "*.cts", "*.vue"],
  ...["*.svelte", "*.go", "*.rs", "*.c", "*.h", "*.cc", "*.cpp", "*.cxx", "*.hh", "*.hpp", "*.m", "*.mm"],
  ...["*.cs", "*.fs", "*.vb", "*.java", "*.kt", "*.kts", "*.scala", "*.groovy", "*.clj", "*.swift", "*.dart"],
  ...["*.rb", "*.php", "*.pl", "*.pm", "*.lua", "*.jl", "*.r", "*.hs", "*.ml", "*.mli", "*.elm", "*.erl"],
  ...["*.ex", "*.zig", "*.nim", "*.tf", "*.nix", "*.proto", "*.graphql", "*.html", "*.css", "*.scss", "*.md"],
  ...["*.rst", "*.adoc"],
];
const ALWAYS = [
  ...[".env*", "secret_token.rb", "wp-config.php", "localsettings.php", "secrets.h", "arduino_secrets.h"],
];
const COPIES = ["~", ".bak", ".backup", ".old", ".orig", ".save", ".swp", ".swo", ".tmp"];

/** Return whether a file's name, without endings of copies, marks secrets. Sample `.env` files count, too. */
export function isSecret(name: string): boolean {
  let small = name.toLowerCase();
  for (let end: string | undefined; (end = COPIES.find((each) => small.endsWith(each))); ) {
    small = small.slice(0, -end.length);
  }
  const isOneOf = (patterns: string[]): boolean => patterns.some((pattern) => fits(small, pattern));
  return isOneOf(ALWAYS) || (isOneOf(SECRET) && !isOneOf(HARMLESS));
}

/** Return true if a name fits a pattern, in which each `*` stands for any text. */
function fits(name: string, pattern: string): boolean {
  const [begin = "", ...parts] = pattern.split("*");
  const end = parts.pop();
  if (end === undefined) {
    return name === pattern;
  }
  let at = begin.length;
  const last = name.length - end.length;
  if (at > last || !name.startsWith(begin) || !name.endsWith(end)) {
    return false;
  }
  for (const part of parts) {
    const found = name.indexOf(part, at);
    if (found < 0 || found + part.length > last) {
      return false;
    }
    at = found + part.length;
  }
  return true;
}
