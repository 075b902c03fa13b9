// Original file: proto/coxswain/v1/control.proto


export interface Proof {
  'mac'?: (Buffer | Uint8Array | string);
}

export interface Proof__Output {
  'mac': (Buffer);
}
