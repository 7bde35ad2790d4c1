"""The core as objectives and metrics of XGBoost, LightGBM and CatBoost; a booster is imported when its adapter is."""
