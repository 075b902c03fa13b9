// docs/config.md is what the schema says. COX_REWRITE=1 writes it anew.
import { readFileSync, writeFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { configPage } from '../../../src/config/docs.ts';
import { OPTIONS } from '../../../src/config/schema.ts';

const PAGE = new URL('../../../docs/config.md', import.meta.url);

test('docs/config.md is current', () => {
  if (process.env['COX_REWRITE'] === '1') writeFileSync(PAGE, configPage());
  expect(readFileSync(PAGE, 'utf8')).toBe(configPage());
});

test('every option says what it takes, what it means and what happens without it', () => {
  for (const option of Object.values(OPTIONS)) {
    expect(option.help).toMatch(/^[A-Z].*\.$/);
    expect(option.takes).not.toBe('');
    expect(option.fallback === null).toBe(option.unset !== undefined);
  }
});

test('flags are unique and in kebab case', () => {
  const flags = Object.values(OPTIONS).map((option) => option.flag);
  expect(new Set(flags).size).toBe(flags.length);
  for (const flag of flags) expect(flag).toMatch(/^[a-z]+(-[a-z]+)*$/);
});
