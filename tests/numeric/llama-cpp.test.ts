// RoPE scalings and vocabularies against llama.cpp's own logits (tests/vectors/logits): every way in which
// a GGUF file asks for scaling, over a prompt that ends in the third KV block. One rank, and two that
// share the heads.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Session, withCluster } from './driver.ts';
import { expectPrompt, type OracleVectors } from './oracle-case.ts';
import { ownModel } from './own-case.ts';

const FOLDER = join(import.meta.dirname, '../vectors/logits');
const NAMES = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length))
  .sort();

interface Recorded extends OracleVectors {
  readonly sha256: string;
}

function recorded(name: string): Recorded {
  const { model, sample_ids, references } = JSON.parse(
    readFileSync(join(FOLDER, `${name}.json`), 'utf8'),
  );
  return { sha256: model.sha256, sampleIds: sample_ids, cases: references.native.cases };
}

const TOPOLOGIES = { 'one rank': { split: [1] }, 'TP 2,1': { split: [2, 1] } };

describe('the logits of llama.cpp', () => {
  it('are recorded for every scaling and vocabulary of the catalogue', async () => {
    const script = new URL('../vectors/own-models.mjs', import.meta.url).href;
    const { PEER_MODELS } = (await import(script)) as { PEER_MODELS: Record<string, unknown> };
    expect(new Set(NAMES)).toEqual(new Set(Object.keys(PEER_MODELS)));
  });

  describe.each(Object.entries(TOPOLOGIES))('on %s', (_, topology) => {
    it.each(NAMES)('%s', async (name) => {
      const { sha256, sampleIds, cases } = recorded(name);
      const model = ownModel(name);
      const digest = createHash('sha256').update(readFileSync(model)).digest('hex');
      expect(digest, 'the model is the one that llama.cpp ran').toBe(sha256);
      await withCluster({ model, topology }, async (cluster) => {
        for (const [slot, reference] of cases.entries()) {
          const tokensMax = reference.prompt.length;
          const session = await Session.create(cluster, { slot, tokensMax });
          expectPrompt(reference, sampleIds, await session.feed(reference.prompt));
        }
      });
    });
  });
});
