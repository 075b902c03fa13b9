// What a rank says of its host. host_id is equal for processes that can share memory: same boot, same
// user, same /dev/shm (containers and namespaces have their own).
import { createHash } from 'node:crypto';
import { createSocket } from 'node:dgram';
import { readFileSync, statSync } from 'node:fs';
import { availableParallelism, freemem, hostname, userInfo } from 'node:os';
import { CoxswainError } from '../../base/errors.ts';

export interface HostFacts {
  readonly host: string;
  readonly hostId: string;
  readonly cores: number;
  /** Available now, not installed. */
  readonly memoryBytes: number;
}

export function hostFacts(): HostFacts {
  const parts = [hostname(), String(userInfo().uid), bootId(), sharedMemoryId()];
  return {
    host: hostname(),
    hostId: createHash('sha256').update(parts.join('\n')).digest('hex').slice(0, 32),
    cores: availableParallelism(),
    memoryBytes: freemem(),
  };
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return 'no boot id'; // not Linux: the host name has to do
  }
}

function sharedMemoryId(): string {
  try {
    const { dev, ino } = statSync('/dev/shm');
    return `${dev}/${ino}`;
  } catch {
    return 'no /dev/shm'; // not Linux: shared memory has no file system there
  }
}

/** "HOST:PORT" or "[V6]:PORT". @throws CoxswainError USAGE_INVALID. */
export function parseAddress(address: string): { readonly host: string; readonly port: number } {
  const match = /^(?:\[([^\]]+)\]|([^:]*)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw new CoxswainError('USAGE_INVALID', `"${address}" is no HOST:PORT.`);
  }
  return { host: match[1] ?? match[2] ?? '', port };
}

/** The local address that packets to `host` leave from; asks the routing table, sends nothing. */
export function localAddressTowards(host: string, port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    socket.once('error', (cause) => {
      socket.close();
      reject(new CoxswainError('CONTROL_LOST', `There is no route to ${host}.`, { cause }));
    });
    // A failed look-up is told here, not as an event; the address would then be that of every interface.
    socket.connect(port, host, (cause?: Error) => {
      if (cause) {
        socket.emit('error', cause);
        return;
      }
      const { address } = socket.address();
      socket.close();
      resolve(address);
    });
  });
}
