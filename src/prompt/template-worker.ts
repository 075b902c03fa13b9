// Entry of the template worker thread: renders one job after the other. It owns nothing but the parsed
// template; the renderer on the other side (template-renderer.ts) ends it when it takes too long.
import { parentPort, workerData } from 'node:worker_threads';
import { present } from '../base/assert.ts';
import type { TemplateJob, TemplateReply, TemplateSetup } from './template-job.ts';
import { TemplateRendering } from './template-rendering.ts';

const port = present(parentPort, 'the template worker runs in a worker thread');
const reply = (message: TemplateReply) => port.postMessage(message);
const setup: TemplateSetup = workerData;

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}

/** Parsed with the first job, so that a broken template is that job's failure. */
let rendering: TemplateRendering | null = null;

port.on('message', (job: TemplateJob) => {
  try {
    rendering ??= new TemplateRendering(setup);
    reply({ kind: 'rendered', id: job.id, marked: rendering.render(job) });
  } catch (thrown) {
    reply({ kind: 'failed', id: job.id, message: messageOf(thrown) });
  }
});
reply({ kind: 'ready' });
