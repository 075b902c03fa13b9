// Original file: proto/coxswain/v1/control.proto


export interface DataFrame {
  'frame'?: (Buffer | Uint8Array | string);
  'more'?: (boolean);
}

export interface DataFrame__Output {
  'frame': (Buffer);
  'more': (boolean);
}
