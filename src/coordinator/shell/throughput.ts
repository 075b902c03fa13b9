// Tokens a second over the last busy moments: samples of the core's counters, idle ones left out, so that
// a quiet cluster shows the speed it last had. Pure but for the times it is given.
const SAMPLES_MAX = 20;

interface Sample {
  readonly tokens: number;
  readonly ms: number;
}

export class Throughput {
  private readonly samples: Sample[] = [];
  private total = 0;
  private at = 0;

  sample(totalTokens: number, now: number): void {
    const tokens = totalTokens - this.total;
    const ms = now - this.at;
    this.total = totalTokens;
    this.at = now;
    if (tokens <= 0) return;
    this.samples.push({ tokens, ms });
    if (this.samples.length > SAMPLES_MAX) this.samples.shift();
  }

  get perSecond(): number {
    let tokens = 0;
    let ms = 0;
    for (const sample of this.samples) {
      tokens += sample.tokens;
      ms += sample.ms;
    }
    return ms === 0 ? 0 : Math.round((tokens / ms) * 10_000) / 10;
  }
}
