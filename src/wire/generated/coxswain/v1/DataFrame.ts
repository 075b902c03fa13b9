// Original file: proto/coxswain/v1/control.proto


export interface DataFrame {
  'frame'?: (Buffer | Uint8Array | string);
}

export interface DataFrame__Output {
  'frame': (Buffer);
}
