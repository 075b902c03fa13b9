import { expect, test } from 'vitest';
import { exposureWarning } from '../../../src/cli/exposure.ts';

test('an API that others reach without a key is warned of, in one line that says what to do', () => {
  const warning = exposureWarning('0.0.0.0', 0);
  expect(warning).toMatch(/0\.0\.0\.0.*--api-keys-file/);
  expect(warning).not.toContain('\n');
});

test.each([
  ['127.0.0.1', 0],
  ['::1', 0],
  ['localhost', 0],
  ['0.0.0.0', 1],
])('%s with %i keys needs no warning', (host, keys) => {
  expect(exposureWarning(host, keys)).toBeNull();
});
