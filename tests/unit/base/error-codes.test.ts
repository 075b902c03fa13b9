// The table of error codes and docs/errors.md say the same, both ways.
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ERROR_CODES, isErrorCode } from '../../../src/base/error-codes.ts';

interface Row {
  readonly code: string;
  readonly http: number;
  readonly retry: string;
  readonly prose: readonly string[];
}

const page = readFileSync(new URL('../../../docs/errors.md', import.meta.url), 'utf8');
const rows: readonly Row[] = page
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))
  .map(([, code = '', http, retry = '', ...prose]) => ({
    code: code.replaceAll('`', ''),
    http: Number(http),
    retry,
    prose: prose.slice(0, 2),
  }));

test('the page explains every code once, in the order of the table, and no other', () => {
  expect(rows.map((row) => row.code)).toEqual(Object.keys(ERROR_CODES));
});

test.each(rows)('$code has the page’s status and retry, a meaning and an advice', (row) => {
  if (!isErrorCode(row.code)) throw new Error(`${row.code} is no code`);
  const { httpStatus, retryable } = ERROR_CODES[row.code];
  expect([row.http, row.retry]).toEqual([httpStatus, retryable ? 'yes' : 'no']);
  expect(row.prose).toHaveLength(2);
  for (const sentence of row.prose) expect(sentence.length).toBeGreaterThan(15);
});

test('names of inherited properties are no codes', () => {
  expect(isErrorCode('toString')).toBe(false);
  expect(isErrorCode('constructor')).toBe(false);
});
