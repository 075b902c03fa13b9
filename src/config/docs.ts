// docs/config.md from the schema. tests/unit/config/docs.test.ts keeps the page current and rewrites it.
import { envName, OPTIONS, type Option } from './schema.ts';

const HEAD = `# Settings

Generated from \`src/config/schema.ts\` by \`COX_REWRITE=1 npx vitest run tests/unit/config/docs.test.ts\`.

Every setting has one name. It is a flag (\`--kv-type f32\`), an environment variable (\`COX_KV_TYPE=f32\`) and a key of the
file that \`--config FILE\` names (JSON: \`{"kv-type": "f32", "split": [2, 1]}\`). A flag wins over the environment, that
over the file, that over the default. Values are checked wherever they stand; an unknown flag or key is an error.
Sizes: \`8GB\` is 8,000,000,000 bytes, \`8GiB\` and \`8G\` are 8 x 2^30.

\`split\` implies \`tp\`, and \`layers\` implies \`pp\`; given side by side they must agree, while a flag of the pair
replaces the other one in the environment or the file. \`ranks\` must equal tp x pp. With \`ranks\` alone all of them
share every layer (TP).

The cluster token is not a setting of the file: it comes from \`COX_CLUSTER_TOKEN\` or \`token-file\`. Make one with
\`openssl rand -hex 32\`.

| name | environment | takes | default | meaning |
| --- | --- | --- | --- | --- |
`;

export function configPage(): string {
  return `${HEAD}${Object.values(OPTIONS).map(row).join('\n')}\n`;
}

function row(option: Option<unknown>): string {
  const fallback = option.fallback === null ? (option.unset ?? '') : `\`${option.fallback}\``;
  const cells = [`\`${option.flag}\``, `\`${envName(option.flag)}\``, option.takes, fallback];
  return `| ${[...cells, option.help].join(' | ')} |`;
}
