export * from './assert.ts';
export * from './explore.ts';
export * from './model.ts';
export * from './mutant.ts';
