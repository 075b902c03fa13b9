// A progress bar on a terminal, silence elsewhere.
import { Presets, SingleBar } from 'cli-progress';
import type { DownloadProgress } from './download.ts';

export interface ProgressBar {
  readonly update: DownloadProgress;
  stop(): void;
}

const MEGABYTE = 1e6;

export function createProgress(label: string): ProgressBar {
  if (!process.stderr.isTTY) return { update: () => undefined, stop: () => undefined };
  const bar = new SingleBar(
    {
      format: `${label} {bar} {percentage}% | {value}/{total} MB | {eta_formatted}`,
      stream: process.stderr,
    },
    Presets.shades_classic,
  );
  let started = false;
  const update: DownloadProgress = (done, total) => {
    const megabytes = Math.round((total ?? done) / MEGABYTE);
    if (!started) bar.start(megabytes, 0);
    started = true;
    bar.setTotal(megabytes);
    bar.update(Math.round(done / MEGABYTE));
  };
  return { update, stop: () => bar.stop() };
}
