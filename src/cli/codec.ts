// The prompt codec of a model file, for commands that need text but no ranks.
import { readModelMetadata } from '../base/addon.ts';
import { createPromptCodec } from '../prompt/prompt.ts';
import type { PromptCodec } from '../prompt/prompt-codec.ts';

export async function withCodec<T>(
  modelPath: string,
  use: (codec: PromptCodec) => T | Promise<T>,
): Promise<T> {
  const codec = createPromptCodec(await readModelMetadata(modelPath));
  try {
    return await use(codec);
  } finally {
    await codec.close();
  }
}
