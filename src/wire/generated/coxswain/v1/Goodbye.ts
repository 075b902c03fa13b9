// Original file: proto/coxswain/v1/control.proto


export interface Goodbye {
  'reason'?: (string);
}

export interface Goodbye__Output {
  'reason': (string);
}
