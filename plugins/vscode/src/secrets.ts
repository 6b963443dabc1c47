/** Files that hold secrets and little else, by their names: the list of `localspec/memory/known/names.json`. */

const SECRET = [
  ...[".git-credentials", ".vault-token", ".vault_pass", ".dev.vars", ".envrc", ".netrc", "_netrc", ".npmrc"],
  ...[".pypirc", ".pgpass", ".htpasswd", ".dockercfg", ".dockerconfigjson", ".s3cfg", ".boto", ".my.cnf"],
  ...[".mylogin.cnf", ".trc", ".tugboat", ".terraformrc", "terraform.rc", "rclone.conf", "kubeconfig", "shadow"],
  ...["credentials", "credentials.json", "credentials.toml", "credentials.xml", "secrets.json", "secrets.toml"],
  ...["secrets.yaml", "secrets.yml", "secret_token.rb", "sftp-config.json", "wp-config.php", "localsettings.php"],
  ...["proftpdpasswd", "otr.private_key", "robomongo.json", "filezilla.xml", "recentservers.xml"],
  ...[".dbeaver-data-sources.xml", "dbeaver-data-sources.xml", ".bash_history", ".zsh_history", ".sh_history"],
  ...[".mysql_history", ".psql_history", ".irb_history", ".python_history", ".node_repl_history", "id_rsa*"],
  ...["id_dsa*", "id_ecdsa*", "id_ed25519*", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "*.env", "*.pem", "*.key"],
  ...["*.keypair", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.ppk", "*.kdb", "*.kdbx", "*.keystore", "*.keyring"],
  ...["*.jks", "*.bcfks", "*.gpg", "*.asc", "*.ovpn", "*.tblk", "*.tfvars", "*.tfvars.json", "*.tfstate"],
  ...["*.psafe3", "*.agilekeychain", "*.keychain", "*.kwallet", "*.bek", "*.fve"],
];
const HARMLESS = ["*.pub", "*.py"];
const ALWAYS = [".env*"];
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

/** `*` is anything, once in a pattern. */
function fits(name: string, pattern: string): boolean {
  const [begin = "", end] = pattern.split("*");
  return end === undefined ? name === pattern : name.startsWith(begin) && name.endsWith(end);
}
