// SHA-256 of a file or of the first bytes of a file, streamed.
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';

export async function hashInto(hash: Hash, path: string): Promise<Hash> {
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) {
    hash.update(chunk as Uint8Array);
  }
  return hash;
}

export async function sha256File(path: string): Promise<string> {
  return (await hashInto(createHash('sha256'), path)).digest('hex');
}
