// Counters of the store as plain numbers, by the names and labels that /metrics shows. The shell copies
// them into its registry; the core only counts.

/** Name -> labels, in the order in which they are given to count(). */
export const STORE_COUNTERS = {
  cox_kv_lookup_total: ['source', 'result'],
  cox_kv_hit_tokens_total: [],
  cox_kv_prompt_tokens_total: [],
  cox_kv_miss_total: ['class'],
  cox_kv_write_bytes_total: ['reason'],
  cox_kv_skip_total: ['reason', 'cause'],
  cox_kv_evict_total: ['reason', 'never_hit'],
  cox_kv_commit_total: ['result'],
  cox_kv_verify_fail_total: ['level'],
  cox_kv_quarantine_total: [],
  cox_kv_trash_total: [],
} as const satisfies Record<string, readonly string[]>;

export type StoreCounter = keyof typeof STORE_COUNTERS;

export interface CounterSample {
  readonly name: StoreCounter;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

export class StoreMetrics {
  private readonly samples = new Map<string, { sample: CounterSample; value: number }>();

  count(name: StoreCounter, values: readonly string[] = [], by = 1): void {
    const key = [name, ...values].join('\u0000');
    const known = this.samples.get(key);
    if (known !== undefined) {
      known.value += by;
      return;
    }
    const names: readonly string[] = STORE_COUNTERS[name];
    const labels = Object.fromEntries(names.map((label, index) => [label, values[index] ?? '']));
    this.samples.set(key, { sample: { name, labels, value: by }, value: by });
  }

  snapshot(): CounterSample[] {
    return [...this.samples.values()].map(({ sample, value }) => ({ ...sample, value }));
  }
}
