// Waits for a condition over state that others change: whoever changes it says notify().
export class ChangeSignal {
  private waiters: (() => void)[] = [];

  notify(): void {
    for (const wake of this.waiters.splice(0)) wake();
  }

  /** True as soon as `condition` holds; false once `deadline` (performance.now()) has passed. */
  async until(condition: () => boolean, deadline: number): Promise<boolean> {
    for (;;) {
      if (condition()) return true;
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) return false;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.waiters.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }
}
