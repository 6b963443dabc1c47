/** Files that hold secrets and little else, by their names: those that the daemon never learns. */

const SECRET = [
  ...[".git-credentials", ".vault-token", "kubeconfig", "*.tfvars", "*.tfstate"],
  ...["credentials.json", "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml"],
  ...[".netrc", ".npmrc", ".pypirc", ".pgpass", ".htpasswd", "shadow", "credentials"],
  ...["id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"],
  ...["*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "*.keystore", "*.jks", "*.gpg", "*.asc", "*.ovpn"],
];
const HARMLESS = ["*.pub", "*.py"];

/** Whether a file's name marks secrets. Whatever begins with `.env` does, samples of it too. */
export function isSecret(name: string): boolean {
  const small = name.toLowerCase();
  const isOneOf = (patterns: string[]): boolean => patterns.some((pattern) => fits(small, pattern));
  return small.startsWith(".env") || (isOneOf(SECRET) && !isOneOf(HARMLESS));
}

/** `*` is anything, once in a pattern. */
function fits(name: string, pattern: string): boolean {
  const [begin = "", end] = pattern.split("*");
  return end === undefined ? name === pattern : name.startsWith(begin) && name.endsWith(end);
}
