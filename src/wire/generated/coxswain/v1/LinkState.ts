// Original file: proto/coxswain/v1/control.proto


export interface LinkState {
  'peer'?: (number);
  'transport'?: (string);
  'interface'?: (string);
  'roundTripUs'?: (number | string);
}

export interface LinkState__Output {
  'peer': (number);
  'transport': (string);
  'interface': (string);
  'roundTripUs': (number);
}
