"""TD-MPC2: latent dynamics with rewards, values and a policy, conditioned on a goal."""
