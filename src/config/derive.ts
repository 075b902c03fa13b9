// What follows from the settings together: the topology that they describe, and the contradictions
// that no single value shows. Derived values are computed here and stored nowhere.
import { CoxswainError } from '../base/errors.ts';
import type { ClusterConfig, KvType } from './schema.ts';
import type { LayerRange } from './values.ts';

/** The engine's and the planner's topology, field for field. */
export interface ConfiguredTopology {
  /** Weight of each TP rank; its length is the TP degree. */
  readonly split: readonly number[];
  readonly pp: number;
  /** One inclusive range a stage, or empty for automatic. */
  readonly layers: readonly LayerRange[];
  readonly kvType: KvType;
  readonly exact: boolean;
  /** Tokens; 0: the model's own. */
  readonly context: number;
}

export function topologyOf(config: ClusterConfig): ConfiguredTopology {
  const { tp, pp } = degrees(config);
  return {
    split: config.split ?? new Array<number>(tp).fill(1),
    pp,
    layers: config.layers ?? [],
    kvType: config.kvType,
    exact: config.exact,
    context: config.ctx ?? 0,
  };
}

/** Ranks that no option places share every layer (TP), unless TP is fixed: then they make stages. */
function degrees(config: ClusterConfig): { readonly tp: number; readonly pp: number } {
  const tp = config.tp ?? config.split?.length ?? null;
  const pp = config.pp ?? config.layers?.length ?? null;
  const ranks = config.ranks ?? 1;
  if (tp === null) return { tp: wholePart(ranks, pp ?? 1), pp: pp ?? 1 };
  return { tp, pp: pp ?? wholePart(ranks, tp) };
}

/** ranks / degree, or 1 where it does not divide: checkTopology then says what is wrong. */
function wholePart(ranks: number, degree: number): number {
  return ranks % degree === 0 ? ranks / degree : 1;
}

/** TP degree x PP degree. */
export function rankCount(config: ClusterConfig): number {
  const { split, pp } = topologyOf(config);
  return split.length * pp;
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

/** Throws CONFIG_INVALID with the pair of settings that contradict each other. */
export function checkTopology(config: ClusterConfig): void {
  const { tp, split, pp, layers, ranks } = config;
  if (tp !== null && split !== null && split.length !== tp) {
    throw contradiction('split', `has ${split.length} weights, but tp is ${tp}`);
  }
  if (pp !== null && layers !== null && layers.length !== pp) {
    throw contradiction('layers', `has ${layers.length} ranges, but pp is ${pp}`);
  }
  const needed = rankCount(config);
  if (ranks !== null && ranks !== needed) {
    throw contradiction('ranks', `is ${ranks}, but the topology (tp x pp) needs ${needed}`);
  }
}

function contradiction(field: string, sentence: string): CoxswainError {
  return new CoxswainError('CONFIG_INVALID', `${field} ${sentence}; make them agree.`, { field });
}
