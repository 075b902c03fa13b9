// The transports of the data plane, as coordinator, wire and engine name them.

/** 'auto': the best that both ends prove; 'fake': the simulated engine's own. */
export const TRANSPORTS = ['auto', 'shm', 'tcp', 'grpc', 'fake'] as const;
export type Transport = (typeof TRANSPORTS)[number];
