// Hosts made of namespaces: each has its own network, mounts, IPC and /dev/shm, joined by a veth pair.
// Needs root and iproute2. What it makes is named after the test process and removed by close().
import { spawnSync } from 'node:child_process';

export interface TestHost {
  readonly address: string;
  /** Words that run a command on this host. */
  readonly wrap: readonly string[];
}

export interface TestHosts {
  readonly hosts: readonly TestHost[];
  close(): void;
}

function must(command: string): void {
  const done = spawnSync('sh', ['-c', command]);
  if (done.status !== 0) throw new Error(`${command}: ${done.stderr.toString('utf8')}`);
}

export function canMakeHosts(): boolean {
  if (process.getuid?.() !== 0) return false;
  const name = `coxprobe${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', name]).status === 0;
  spawnSync('ip', ['netns', 'del', name]);
  return made;
}

/** Two hosts, 10.77.0.1 and 10.77.0.2, with 1,500-byte frames between them. */
export function makeTwoHosts(): TestHosts {
  const names = ['a', 'b'].map((letter) => `cox${process.pid}${letter}`);
  const [left, right] = names;
  const close = () => {
    for (const name of names) spawnSync('ip', ['netns', 'del', name]);
  };
  try {
    for (const name of names) must(`ip netns add ${name} && ip -n ${name} link set lo up`);
    must(`ip link add veth0 netns ${left} type veth peer name veth0 netns ${right}`);
    names.forEach((name, index) => {
      must(
        `ip -n ${name} addr add 10.77.0.${index + 1}/24 dev veth0 && ip -n ${name} link set veth0 up`,
      );
    });
  } catch (thrown) {
    close();
    throw thrown;
  }
  // A tmpfs on /dev/shm and an IPC namespace of its own: memory of one host is invisible on the other.
  const own = [
    'unshare',
    '--mount',
    '--ipc',
    'sh',
    '-c',
    'mount -t tmpfs tmpfs /dev/shm && exec "$@"',
    'sh',
  ];
  return {
    hosts: names.map((name, index) => ({
      address: `10.77.0.${index + 1}`,
      wrap: ['ip', 'netns', 'exec', name, ...own],
    })),
    close,
  };
}
