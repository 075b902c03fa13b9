// One cell of the matrix: a model on a topology, over a transport, in a mode, with a kernel set, a number
// of threads and a chunk size. Owns the references that cells are held against:
//   exact    the oracle's logits, 1e-3
//   a8       the oracle's logits statistically (rms over all recorded logits, relative)
//   one TP rank (one rank, PP)   every bit of the scalar kernels on one rank, in one piece
//   several TP ranks             every bit of any other cell with the same split; the one rank statistically
import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { Transport } from '../../src/base/transport.ts';
import type { Topology } from '../../src/engine/engine.ts';
import { type ClusterOptions, oracleModel, Session, withCluster } from './driver.ts';
import { expectPrompt, type OracleCase, type OracleVectors, oracleVectors } from './oracle-case.ts';
import { OWN_NAMES, ownModel, ownVectors } from './own-case.ts';

export const TOPOLOGIES: Readonly<Record<string, Pick<Topology, 'split' | 'pp'>>> = {
  'one rank': { split: [1], pp: 1 },
  'TP 2': { split: [1, 1], pp: 1 },
  'TP 3,2,2': { split: [3, 2, 2], pp: 1 },
  'TP 1,1,1,1': { split: [1, 1, 1, 1], pp: 1 },
  'PP 2': { split: [1], pp: 2 },
  'TP 2 x PP 2': { split: [1, 1], pp: 2 },
};

export const MODES: Readonly<Record<string, Pick<Topology, 'exact' | 'kvType'>>> = {
  'exact, f32': { exact: true, kvType: 'f32' },
  'a8, f16': { exact: false, kvType: 'f16' },
};

/**
 * Root mean square differences relative to the logits. Measured over all pairs of factors: a8 from the oracle
 * (llama.cpp itself, with its 8-bit activations, differs as much), several TP ranks from one.
 */
const FROM_ORACLE = { block: 0.045, float: 0.003 }; // measured 0.032 (own-nine.q4_1: llama.cpp 0.034), 0.0008
const FROM_ONE_RANK = { block: 0.025, float: 0.0002, exact: 4e-6 }; // measured 0.0167, 8e-5, 9e-7

export interface MatrixCell {
  readonly model: string;
  readonly topology: string;
  readonly transport: string;
  readonly mode: string;
  readonly isa: string;
  readonly threads: number;
  readonly chunk: number;
}

interface Reference {
  readonly logits: readonly Float32Array[];
  readonly digests: readonly string[];
}

const references = new Map<string, Promise<Reference>>();
/** Row digests by (model, mode, split), with the cell that made them first. */
const seen = new Map<string, { readonly title: string; readonly digests: readonly string[] }>();

export const titleOf = (cell: MatrixCell): string =>
  `${cell.model}, ${cell.topology}, ${cell.transport}, ${cell.mode}, ${cell.isa}, ` +
  `${cell.threads} thread(s), chunks of ${cell.chunk}`;

export const modelPath = (model: string): string =>
  OWN_NAMES.includes(model) ? ownModel(model) : oracleModel(model);

/** Types that a8 multiplies with int8 activations. */
const isBlockType = (model: string): boolean => /\.i?q\d/.test(model);

function vectorsOf(model: string): OracleVectors {
  return OWN_NAMES.includes(model) ? ownVectors(model) : oracleVectors(model);
}

const longCase = (vectors: OracleVectors): OracleCase =>
  present(
    vectors.cases.find((candidate) => candidate.name === 'long'),
    'a long case',
  );

const digestsOf = (logits: readonly Float32Array[]): string[] =>
  logits.map((row) => createHash('sha256').update(row).digest('hex').slice(0, 16));

async function logitsOfCell(cell: MatrixCell, prompt: readonly number[]): Promise<Float32Array[]> {
  const topology = {
    ...present(TOPOLOGIES[cell.topology], 'a topology'),
    ...present(MODES[cell.mode], 'a mode'),
  };
  const options: ClusterOptions = {
    model: modelPath(cell.model),
    topology,
    threads: cell.threads,
    transport: cell.transport === 'none' ? 'auto' : (cell.transport as Transport),
  };
  process.env['COX_ISA'] = cell.isa;
  try {
    return await withCluster(options, async (cluster) => {
      expect(cluster.facts.map((facts) => facts.isa)).toEqual(cluster.facts.map(() => cell.isa));
      const session = await Session.create(cluster, { slot: 0, tokensMax: prompt.length });
      return await session.feed(prompt, cell.chunk);
    });
  } finally {
    delete process.env['COX_ISA'];
  }
}

function oneRankReference(cell: MatrixCell, prompt: readonly number[]): Promise<Reference> {
  const key = `${cell.model}, ${cell.mode}`;
  const known = references.get(key);
  if (known !== undefined) return known;
  const plain: MatrixCell = {
    ...cell,
    topology: 'one rank',
    transport: 'none',
    isa: 'scalar',
    threads: 2,
    chunk: prompt.length,
  };
  const made = logitsOfCell(plain, prompt).then((logits) => ({
    logits,
    digests: digestsOf(logits),
  }));
  references.set(key, made);
  return made;
}

/** Root of the summed squares of differences, relative to that of the wanted values. */
class RelativeDifference {
  private difference = 0;
  private wanted = 0;

  add(got: number | undefined, wanted: number): void {
    this.difference += (present(got, 'as many logits') - wanted) ** 2;
    this.wanted += wanted ** 2;
  }

  get value(): number {
    return Math.sqrt(this.difference / this.wanted);
  }
}

function differenceOf(logits: readonly Float32Array[], wanted: readonly Float32Array[]): number {
  const difference = new RelativeDifference();
  wanted.forEach((row, pos) => {
    row.forEach((logit, id) => {
      difference.add(logits[pos]?.[id], logit);
    });
  });
  return difference.value;
}

/** Over everything that the vectors record. */
function differenceFromOracle(vectors: OracleVectors, logits: readonly Float32Array[]): number {
  const difference = new RelativeDifference();
  for (const { pos, sampled, top } of longCase(vectors).positions) {
    for (const [id, logit] of top) difference.add(logits[pos]?.[id], logit);
    sampled.forEach((logit, index) => {
      difference.add(logits[pos]?.[present(vectors.sampleIds[index], 'an id')], logit);
    });
  }
  return difference.value;
}

function expectSameDigests(
  cell: MatrixCell,
  digests: readonly string[],
  wanted: { readonly title: string; readonly digests: readonly string[] },
): void {
  const row = digests.findIndex((digest, index) => digest !== wanted.digests[index]);
  expect(row, `${titleOf(cell)}: first row whose bits differ from those of ${wanted.title}`).toBe(
    -1,
  );
}

export interface Measured {
  readonly fromOracle: number;
  readonly fromOneRank: number;
}

/** Runs a cell and holds it against all its references. */
export async function checkCell(cell: MatrixCell): Promise<Measured> {
  const vectors = vectorsOf(cell.model);
  const reference = longCase(vectors);
  const logits = await logitsOfCell(cell, reference.prompt);
  const exact = cell.mode.startsWith('exact');
  const weights = isBlockType(cell.model) ? 'block' : 'float';
  const fromOracle = differenceFromOracle(vectors, logits);
  if (exact) expectPrompt(reference, vectors.sampleIds, logits);
  else expect(fromOracle, 'difference from the oracle').toBeLessThan(FROM_ORACLE[weights]);

  const digests = digestsOf(logits);
  const oneRank = await oneRankReference(cell, reference.prompt);
  const fromOneRank = differenceOf(logits, oneRank.logits);
  const split = present(TOPOLOGIES[cell.topology], 'a topology').split;
  if (split.length === 1) {
    expectSameDigests(cell, digests, { title: 'the scalar one-rank run', ...oneRank });
    return { fromOracle, fromOneRank };
  }
  expect(fromOneRank, 'difference from one rank').toBeLessThan(
    FROM_ONE_RANK[exact ? 'exact' : weights],
  );
  const key = `${cell.model}, ${cell.mode}, ${split.join()}`;
  const earlier = seen.get(key);
  if (earlier === undefined) seen.set(key, { title: titleOf(cell), digests });
  else expectSameDigests(cell, digests, earlier);
  return { fromOracle, fromOneRank };
}
