// Original file: proto/coxswain/v1/control.proto


export interface Challenge {
  'nonce'?: (Buffer | Uint8Array | string);
  'protocol'?: (number);
  'clusterId'?: (string);
  'identity'?: (string);
}

export interface Challenge__Output {
  'nonce': (Buffer);
  'protocol': (number);
  'clusterId': (string);
  'identity': (string);
}
