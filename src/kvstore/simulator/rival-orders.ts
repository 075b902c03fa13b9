// Orders of eviction that the store's own is measured against.
import type { Catalog } from '../core/catalog.ts';
import type { EvictionOrder } from '../core/eviction.ts';

export const leastRecentlyUsed: EvictionOrder = (record) => record.lastUsedMs;

const DS4_HALF_LIFE_MS = 6 * 3_600_000;
const DS4_ANCHOR_FACTOR = 2;

/**
 * The formula of ds4's store: (hits * 2^(-age / 6 h), below .01 nothing, + 1) * tokens / bytes, doubled
 * for what is no interval unit. The bytes are those that a whole file of the unit takes.
 */
export function ds4Formula(catalog: () => Catalog, layout: 'chain' | 'whole'): EvictionOrder {
  return (record, nowMs) => {
    const { unit, hits, lastUsedMs } = record;
    const decayed = hits * 2 ** (-(nowMs - lastUsedMs) / DS4_HALF_LIFE_MS);
    const factor = unit.reason === 'interval' ? 1 : DS4_ANCHOR_FACTOR;
    const whole = unit.segments.reduce((sum, { fileBytes }) => sum + fileBytes, 0);
    const bytes = layout === 'whole' ? whole : Math.max(1, catalog().reclaimable(record));
    return (factor * ((decayed < 0.01 ? 0 : decayed) + 1) * unit.tokens) / bytes;
  };
}
