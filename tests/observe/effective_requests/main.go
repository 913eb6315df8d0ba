// Prints what Kubernetes counts as the request of each pod of a JSON list on standard input, as kube-scheduler 1.36 does.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

func main() {
	if err := answer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer() error {
	var pods []v1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pods); err != nil {
		return err
	}
	requests := make([]map[string]string, 0, len(pods))
	options := resource.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	}
	for index := range pods {
		amounts := map[string]string{}
		for name, quantity := range resource.PodRequests(&pods[index], options) {
			amounts[string(name)] = quantity.String()
		}
		requests = append(requests, amounts)
	}
	return json.NewEncoder(os.Stdout).Encode(requests)
}
