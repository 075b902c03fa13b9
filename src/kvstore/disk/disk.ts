// Every byte of the store goes through this interface, so that a simulated disk can lose what was not
// synced, tear what was being written, and fail. Directories are 0700, files 0600. Failures are
// CoxswainErrors with KV_WRITE_FAILED (writing) or FILE_UNREADABLE (reading); a missing file is a value.

export interface DiskFile {
  /** Appends. */
  write(bytes: Uint8Array): Promise<void>;
  /** Data and size are on the medium (F_FULLFSYNC on Darwin). After a failure never to be retried. */
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface DiskEntry {
  readonly name: string;
  readonly bytes: number;
  readonly directory: boolean;
}

export interface Disk {
  /** With parents, which are synced; existing ones are fine. */
  makeDirectory(path: string): Promise<void>;
  /** null: there is none. */
  list(path: string): Promise<readonly DiskEntry[] | null>;
  /** null: there is none. */
  size(path: string): Promise<number | null>;
  /** Exactly `bytes` bytes from `offset`; shorter only where the file ends. null: there is none. */
  read(path: string, offset: number, bytes: number): Promise<Uint8Array | null>;
  /** Fails where the name is taken. */
  createExclusive(path: string): Promise<DiskFile>;
  /** Not synced: for what may be lost. */
  append(path: string, bytes: Uint8Array): Promise<void>;
  rename(from: string, to: string): Promise<void>;
  /** False: there was none. */
  unlink(path: string): Promise<boolean>;
  /** Names in this directory are on the medium. */
  syncDirectory(path: string): Promise<void>;
  freeBytes(path: string): Promise<number>;
}

/**
 * One holder of a directory at a time, also across processes. Throws KV_LOCKED naming the holder's pid.
 * The lock ends with the process.
 */
export interface DirectoryLocks {
  lock(path: string): Promise<{ release(): Promise<void> }>;
}
